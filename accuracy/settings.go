package accuracy

import "github.com/lowbit-go/gq/internal/lm/forward"

// Settings say how a file is measured.
type Settings struct {
	// TensorsOnly checks the default gate without running the models. Default: false.
	TensorsOnly bool
	// MinTokens is the least number of scored tokens for a gate that limits figures of the model.
	// Default (0): the gate's own, or else 1,000.
	MinTokens int
	// Activations is the type of the quantized models' activations. Default (forward.Int8): as on the
	// device, or as the gate says.
	Activations forward.Activations
	// ActivationShare runs the quantized model with float32 activations, too, and reports in
	// TextReport.ActivationError what share of the divergence int8 activations cause. It takes a text,
	// a model that gq can run, and Activations Int8. Default: false.
	ActivationShare bool
	// NoOutputs skips the outputs of layers. Default: false.
	NoOutputs bool
	// RandomInputs executes layers on random activations even if there is a text. Otherwise layers
	// are executed on activations of the first text, if the checkpoint has a model to run.
	RandomInputs bool
	// Parity compares the kernels of this machine with the portable reference. Default: false.
	Parity bool
	// Threads is the number of goroutines. Default (0): GOMAXPROCS. No figure depends on it.
	Threads int
	// Version is the program's version, for the report. Default (""): none.
	Version string
}
