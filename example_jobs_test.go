package gq_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/quantizer"
)

// Each worker of a cluster makes a part of the file. The last step joins the parts.
func ExampleQuantizePart() {
	dir, remove := temporary()
	defer remove()
	file := filepath.Join(dir, "model.gqf")
	plan := ""
	for i := range 2 {
		var p gq.PartOptions
		p.Index, p.Of = i, 2
		r, err := gq.QuantizePart(context.Background(), checkpoint, file, p, gq.QuantizeOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Part, "of", filepath.Base(file))
		plan = r.Plan
	}
	r, err := gq.Merge(context.Background(), file, gq.MergeOptions{Plan: plan})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d parts became %d bytes\n", r.Parts, r.OutputBytes)
	// Output:
	// part 0 of 2 of model.gqf
	// part 1 of 2 of model.gqf
	// 2 parts became 944896 bytes
}

// A merge needs the plan that the parts were made by, so that it joins no parts of another job.
func ExampleMerge() {
	dir, remove := temporary()
	defer remove()
	_, err := gq.Merge(context.Background(), filepath.Join(dir, "model.gqf"), gq.MergeOptions{Plan: "half"})
	fmt.Println(err)
	// Output:
	// plan "half": expected the 24 hexadecimal digits that gq quantize --part prints
}

func ExampleSweep() {
	r, err := gq.Sweep(context.Background(), checkpoint, gq.SweepOptions{
		Recipes: []gq.SweepRecipe{
			{Name: "four", Recipe: quantizer.Recipe{Bits: 4}},
			{Name: "three", Recipe: quantizer.Recipe{Bits: 3}},
		},
		Measure: gq.MeasureOptions{Texts: []gq.TextFile{{Path: "testdata/text/lighthouse.txt"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Files {
		fmt.Printf("%-5s %d bytes, mean KL %.4f nats per token\n", f.Name, f.FileBytes, f.Texts[0].Model.KL.Mean)
	}
	// Output:
	// four  944896 bytes, mean KL 0.0269 nats per token
	// three 797440 bytes, mean KL 0.1219 nats per token
}

// A web server has the files of a checkpoint. Pull keeps them in the cache.
func ExamplePull() {
	dir, remove := temporary()
	defer remove()
	defer os.Setenv("XDG_CACHE_HOME", os.Getenv("XDG_CACHE_HOME"))
	os.Setenv("XDG_CACHE_HOME", dir)
	server := httptest.NewServer(http.FileServer(http.Dir(checkpoint)))
	defer server.Close()
	r, err := gq.Pull(context.Background(), server.URL+"/model.safetensors", gq.PullOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Files {
		fmt.Println(f.Name, f.Bytes)
	}
	// Output:
	// model.safetensors 2630912
	// config.json 663
	// generation_config.json 74
	// special_tokens_map.json 71
	// tokenizer.json 31425
	// tokenizer_config.json 272
}
