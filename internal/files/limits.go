package files

// Limits in bytes of the files that are read into memory. They keep a mistaken path from filling
// the memory. Each is several times the size of the largest known file of its kind.
const (
	MaxModelFile = 64 << 20 // config.json, tokenizer.json (33 MB with Gemma 3), chat templates
	MaxText      = 1 << 30  // texts and token ids
	MaxImatrix   = 4 << 30  // importance matrices (1 GB with 671B parameters)
	MaxReport    = 1 << 30  // reports of gq accuracy
	MaxFold      = 1 << 30  // records of a folded checkpoint: 12 bytes or so a column
	MaxYAML      = 4 << 20  // recipes and gates: 38,000 rules, which take 250 MB while they are parsed
)
