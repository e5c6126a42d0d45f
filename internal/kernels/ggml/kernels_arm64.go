//go:build !purego

package ggml

import "github.com/lowbit-go/gq/internal/cpu"

// Stubs of the assembly: products of rows of the type in the name, as Format states.

func gemvQ2KDotprod(a *RowArgs)
func gemvQ3KDotprod(a *RowArgs)
func gemvQ4KDotprod(a *RowArgs)
func gemvQ5KDotprod(a *RowArgs)
func gemvQ6KDotprod(a *RowArgs)
func gemvIQ4XSDotprod(a *RowArgs)
func gemvQ40Dotprod(a *RowArgs)
func gemvQ41Dotprod(a *RowArgs)
func gemvQ50Dotprod(a *RowArgs)
func gemvQ51Dotprod(a *RowArgs)
func gemvQ80Dotprod(a *RowArgs)
func gemvIQ4NLDotprod(a *RowArgs)
func gemvMXFP4Dotprod(a *RowArgs)
func gemvNVFP4Dotprod(a *RowArgs)
func gemvTQ10Dotprod(a *RowArgs)
func gemvTQ20Dotprod(a *RowArgs)

func gemvQ2KNEON(a *RowArgs)
func gemvQ3KNEON(a *RowArgs)
func gemvQ4KNEON(a *RowArgs)
func gemvQ5KNEON(a *RowArgs)
func gemvQ6KNEON(a *RowArgs)
func gemvIQ4XSNEON(a *RowArgs)
func gemvQ40NEON(a *RowArgs)
func gemvQ41NEON(a *RowArgs)
func gemvQ50NEON(a *RowArgs)
func gemvQ51NEON(a *RowArgs)
func gemvQ80NEON(a *RowArgs)
func gemvIQ4NLNEON(a *RowArgs)
func gemvMXFP4NEON(a *RowArgs)
func gemvNVFP4NEON(a *RowArgs)
func gemvTQ10NEON(a *RowArgs)
func gemvTQ20NEON(a *RowArgs)

// Format.unpack for the type in the name.

func unpackQ2KNEON(a *UnpackArgs)
func unpackQ3KNEON(a *UnpackArgs)
func unpackQ4KNEON(a *UnpackArgs)
func unpackQ5KNEON(a *UnpackArgs)
func unpackQ6KNEON(a *UnpackArgs)
func unpackIQ4XSNEON(a *UnpackArgs)
func unpackQ40NEON(a *UnpackArgs)
func unpackQ41NEON(a *UnpackArgs)
func unpackQ50NEON(a *UnpackArgs)
func unpackQ51NEON(a *UnpackArgs)
func unpackQ80NEON(a *UnpackArgs)
func unpackIQ4NLNEON(a *UnpackArgs)
func unpackMXFP4NEON(a *UnpackArgs)
func unpackNVFP4NEON(a *UnpackArgs)
func unpackTQ10NEON(a *UnpackArgs)
func unpackTQ20NEON(a *UnpackArgs)

// Constants of the assembly.
var (
	iq4Numbers = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	iq4Shifts  = [8]int16{0, -2, -4, -6, -8, -10, -12, -14}
	fp4Numbers = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12} // E2M1, doubled
	fifthBits  = [48]uint8{
		0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
		2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
		1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
	}
)

func init() {
	registerRows(cpu.NEON, 1, map[string]func(*RowArgs){
		"Q2_K": gemvQ2KNEON, "Q3_K": gemvQ3KNEON, "Q4_K": gemvQ4KNEON, "Q5_K": gemvQ5KNEON, "Q6_K": gemvQ6KNEON, "IQ4_XS": gemvIQ4XSNEON,
		"TQ1_0": gemvTQ10NEON, "TQ2_0": gemvTQ20NEON,
	})
	registerRows(cpu.NEON, 4, map[string]func(*RowArgs){
		"Q4_0": gemvQ40NEON, "Q4_1": gemvQ41NEON, "Q5_0": gemvQ50NEON, "Q5_1": gemvQ51NEON, "Q8_0": gemvQ80NEON, "IQ4_NL": gemvIQ4NLNEON,
		"MXFP4": gemvMXFP4NEON, "NVFP4": gemvNVFP4NEON,
	})
	registerRows(cpu.DotProd, 1, map[string]func(*RowArgs){
		"Q2_K": gemvQ2KDotprod, "Q3_K": gemvQ3KDotprod, "Q4_K": gemvQ4KDotprod, "Q5_K": gemvQ5KDotprod, "Q6_K": gemvQ6KDotprod, "IQ4_XS": gemvIQ4XSDotprod,
		"TQ1_0": gemvTQ10Dotprod, "TQ2_0": gemvTQ20Dotprod,
	})
	registerRows(cpu.DotProd, 4, map[string]func(*RowArgs){
		"Q4_0": gemvQ40Dotprod, "Q4_1": gemvQ41Dotprod, "Q5_0": gemvQ50Dotprod, "Q5_1": gemvQ51Dotprod, "Q8_0": gemvQ80Dotprod, "IQ4_NL": gemvIQ4NLDotprod,
		"MXFP4": gemvMXFP4Dotprod, "NVFP4": gemvNVFP4Dotprod,
	})
	registerUnpack(cpu.NEON, map[string]Unpack{
		"Q2_K": unpackQ2KNEON, "Q3_K": unpackQ3KNEON, "Q4_K": unpackQ4KNEON, "Q5_K": unpackQ5KNEON, "Q6_K": unpackQ6KNEON, "IQ4_XS": unpackIQ4XSNEON,
		"Q4_0": unpackQ40NEON, "Q4_1": unpackQ41NEON, "Q5_0": unpackQ50NEON, "Q5_1": unpackQ51NEON, "Q8_0": unpackQ80NEON, "IQ4_NL": unpackIQ4NLNEON,
		"MXFP4": unpackMXFP4NEON, "NVFP4": unpackNVFP4NEON, "TQ1_0": unpackTQ10NEON, "TQ2_0": unpackTQ20NEON,
	})
}
