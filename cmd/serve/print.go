package serve

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// printReady prints the models and the address, with --json in one line for a program.
func printReady(c *cli.Context, r gq.ServeReport) error {
	w := c.App.Writer
	if c.Bool("json") {
		return json.NewEncoder(w).Encode(r)
	}
	err := cmdline.Table(w, []string{"MODEL", "SCHEME", "SIZE>", "BITS/WEIGHT>", "ACTIVATIONS", "CONTEXT>", "PARALLEL>", "KEYS AND VALUES>", "CHAT TEMPLATE"}, func(line func(...any)) {
		for _, m := range r.Models {
			template := m.Template
			if template == "plain" {
				template = "plain: the model has none"
			}
			line(cmdline.Text(m.ID), m.Scheme, cmdline.Bytes(m.Bytes), fmt.Sprintf("%.2f", m.Bits), m.Activations, m.Context, m.Parallel, cmdline.Bytes(m.Memory), template)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n", r.URL)
	return err
}
