//go:build purego || !(amd64 || arm64)

package rowmath

// implementation is empty: there is no assembly in this build.
const implementation = ""

var (
	mulAdd  = mulAddGeneric
	softmax = softmaxGeneric
	gate    = gateGeneric
)
