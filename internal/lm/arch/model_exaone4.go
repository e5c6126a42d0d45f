package arch

import "strings"

var _ = register("exaone4", Facts{
	Title: "EXAONE 4", Class: "Exaone4ForCausalLM",
	Layer: join(postNorms, separateAttention, queryKeyNorms, separateMLP),
	LlamaCpp: &LlamaCpp{Name: "exaone4", Windows: RefusedWindow, WindowLayers: 64, RopeFactors: []string{"llama3"}, Config: func(m Metadata) map[string]any {
		return map[string]any{"hidden_act": "silu", "sliding_window": nil}
	}},
	read: func(k *keys, c *ForwardConfig) {
		k.readCommon(c, 32, 32, 0, 1e-5)
		k.positions(c, 2048, ropeDefaults{theta: 10000})
		c.QKNorm = HeadNorms
		window := k.window(4096)
		k.slidingLayers(c, window, k.exaonePattern(window))
		if window == 0 {
			return
		}
		for i := range c.Layers {
			if c.Layers[i].Window == 0 {
				c.Layers[i].Rope = -1
			}
		}
	},
})

// exaonePattern reads which layers have a sliding window if layer_types is missing: a period, or
// letters of which each L is a local layer.
func (k *keys) exaonePattern(window int) func(i int) bool {
	if k.has("sliding_window_pattern") && strings.HasPrefix(string(k.keys["sliding_window_pattern"]), `"`) {
		letters := read(k, "sliding_window_pattern", "", "is not a string")
		if strings.Trim(letters, "LG") != "" || letters == "" {
			k.fail("sliding_window_pattern", "is %q: letters L and G were expected", letters)
			return func(int) bool { return false }
		}
		return func(i int) bool { return window != 0 && letters[i%len(letters)] == 'L' }
	}
	period := k.count("sliding_window_pattern", 4)
	return func(i int) bool { return window != 0 && period != 0 && (i+1)%period != 0 }
}
