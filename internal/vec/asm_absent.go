//go:build purego || !(amd64 || arm64)

package vec

// Functions of the assembly: accelerated chooses none of them here.

func widenBF16Block(_ *float32, _ *byte, _ int)                                { panic(absent) }
func widenF16Block(_ *float32, _ *byte, _ int)                                 { panic(absent) }
func groupRangeBlock(_, _, _ *float32, _, _ int) uint32                        { panic(absent) }
func leastMagnitudesBlock(_ *uint32, _ *float32, _, _ int)                     { panic(absent) }
func latticeGroupsBlock(_ *uint8, _, _ *float32, _ *uint32, _ *float32, _ int) { panic(absent) }
func quantizeGroupsBlock(_ *int8, _, _, _ *float32, _ *int8, _, _, _, _, _ int, _ *float64) {
	panic(absent)
}
func quantizeFractionsBlock(_ *int8, _, _, _ *float32, _ *int8, _ *float32, _, _, _, _, _ int, _ *float64) {
	panic(absent)
}
func searchScalesBlock(_ *float32, _ float32, _, _ *float32, _ int)              { panic(absent) }
func scaleErrorsBlock(_, _, _ *float32, _ int)                                   { panic(absent) }
func sumSquaresBlock(_ *float64, _ *float32, _ int)                              { panic(absent) }
func importanceBlock(_, _ *float32, _ int, _ float32)                            { panic(absent) }
func columnSumsBlock(_, _, _ *float32, _ int)                                    { panic(absent) }
func columnCodesBlock(_, _, _, _, _ *float32)                                    { panic(absent) }
func fitRangesBlock(_ *float32, _, _, _, _ float32, _, _ *float32, _ int)        { panic(absent) }
func gridErrorsBlock(_ *float32, _, _ float32, _, _ *float32, _ int)             { panic(absent) }
func fitLoadBlock(_ *int16, _, _, _ *float32, _ int)                             { panic(absent) }
func fitSearchBlock(_ *float32, _ *int16, _, _ *uint32, _ int)                   { panic(absent) }
func fitChooseBlock(_ *int32, _ *float32, _ *int16, _ *uint32, _ int, _ float32) { panic(absent) }
func fitTotalsBlock(_ *float32, _ *int16, _ int)                                 { panic(absent) }
func searchGridsBlock(_, _ *float32, _ *int16, _, _, _ int)                      { panic(absent) }
func chooseGridsBlock(_ *int32, _ *float32, _ *int16, _, _, _ int, _ float32)    { panic(absent) }
func stepSoftBlock(_, _ *float32, _ *int8, _, _, _ *float32, _, _ int, _ *float32) {
	panic(absent)
}
