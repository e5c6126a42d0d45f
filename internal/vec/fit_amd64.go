//go:build !purego

package vec

func fitSearch(f *Fit) {
	switch accelerated.Chosen() {
	case wide:
		fitSearchWide(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
	case assembly:
		fitSearchBlock(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
	default:
		fitSearchGeneric(f)
	}
}

func fitChoose(f *Fit) {
	switch accelerated.Chosen() {
	case wide:
		fitChooseWide(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
	case assembly:
		fitChooseBlock(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
	default:
		fitChooseGeneric(f)
	}
}
