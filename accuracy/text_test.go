package accuracy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCutTokens(t *testing.T) {
	ids := []int32{10, 11, 12, 13, 14, 15, 16}
	for _, c := range []struct {
		name      string
		bos, sep  int32
		o         TextOptions
		want      []Window
		wantError string
	}{
		{"windows", 1, -1, TextOptions{Window: 4}, []Window{
			{[]int32{1, 10, 11, 12}, 1}, {[]int32{1, 13, 14, 15}, 1}, {[]int32{1, 16}, 1}}, ""},
		{"windows without bos", -1, -1, TextOptions{Window: 4}, []Window{
			{[]int32{10, 11, 12, 13}, 1}, {[]int32{14, 15, 16}, 1}}, ""},
		{"stride", 1, -1, TextOptions{Window: 5, Stride: 2}, []Window{
			{[]int32{1, 10, 11, 12, 13}, 1}, {[]int32{1, 12, 13, 14, 15}, 3}, {[]int32{1, 14, 15, 16}, 3}}, ""},
		{"documents", 1, 12, TextOptions{Convention: Documents, Window: 4}, []Window{
			{[]int32{1, 10, 11}, 1}, {[]int32{1, 13, 14, 15}, 1}}, ""},
		{"llama.cpp", 1, -1, TextOptions{Convention: LlamaCpp, Window: 4}, []Window{{[]int32{1, 11, 12, 13}, 3}}, ""},
		{"limit", 1, -1, TextOptions{Window: 4, MaxTokens: 5}, []Window{{[]int32{1, 10, 11, 12}, 1}, {[]int32{1, 13, 14}, 1}}, ""},
		{"llama.cpp, too short", 1, -1, TextOptions{Convention: LlamaCpp, Window: 8}, nil, "fewer than one window"},
		{"stride and documents", 1, -1, TextOptions{Convention: Documents, Window: 8, Stride: 3}, nil, "a stride is for"},
		{"window", 1, -1, TextOptions{Window: 1}, nil, "a window of 1"},
		{"stride too long", 1, -1, TextOptions{Window: 4, Stride: 4}, nil, "a stride of 4"},
		{"convention", 1, -1, TextOptions{Convention: "half"}, nil, `convention "half"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := CutTokens(ids, c.bos, c.sep, c.o)
			if c.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Fatalf("error %v, want one with %q", err, c.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := CutTokens(nil, 1, -1, TextOptions{}); err != errNoText {
		t.Errorf("no tokens: %v", err)
	}
}

func TestParseTokens(t *testing.T) {
	got, err := ParseTokens([]byte("[1, 2,3\n4 5]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int32{1, 2, 3, 4, 5}, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"1 -2", "1 2.5", "x", "99999999999", "0x10"} {
		if ids, err := ParseTokens([]byte(bad)); err == nil {
			t.Errorf("%q gives %v", bad, ids)
		}
	}
}
