package llamacpp

import "github.com/lowbit-go/gq/formats/gguf"

// ReadConfig returns the config.json of the model in a GGUF file, without its tokenizer.
func ReadConfig(f *gguf.File) (config []byte, err error) {
	err = f.Guard(func() error {
		r, err := newConfigReader(f)
		if err != nil {
			return err
		}
		all, err := r.read()
		if err != nil {
			return err
		}
		config, err = encode(all)
		return err
	})
	return config, err
}
