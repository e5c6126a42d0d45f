//go:build purego || !amd64

package vec

const absent = "vec: assembly that this build does not have"

// Functions for AVX2 and AVX-512 only.

func fitSearchWide(_ *float32, _ *int16, _, _ *uint32, _ int)                   { panic(absent) }
func fitChooseWide(_ *int32, _ *float32, _ *int16, _ *uint32, _ int, _ float32) { panic(absent) }
func searchGridsWide(_, _ *float32, _ *int16, _, _, _ int)                      { panic(absent) }
func chooseGridsWide(_ *int32, _ *float32, _ *int16, _, _, _ int, _ float32)    { panic(absent) }
func nearScalesBlock(_, _ *float32, _, _ *uint32, _ int, _, _ uint32)           { panic(absent) }
func decodeNibblesBlock(_ *float32, _ *byte, _ int)                             { panic(absent) }
func decodeBytesBlock(_ *float32, _ *byte, _ int)                               { panic(absent) }
