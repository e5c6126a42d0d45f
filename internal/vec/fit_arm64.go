//go:build !purego

package vec

func fitSearch(f *Fit) {
	if !assembled() {
		fitSearchGeneric(f)
		return
	}
	fitSearchBlock(&f.Scale[0], &f.data[0], &f.starts[0][0], &f.limits[0], f.width)
}

func fitChoose(f *Fit) {
	if !assembled() {
		fitChooseGeneric(f)
		return
	}
	fitChooseBlock(&f.Choice[0], &f.Stored[0][0], &f.data[0], &f.limits[0], f.width, f.power)
}
