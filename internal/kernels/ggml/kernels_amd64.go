//go:build !purego

package ggml

import "github.com/lowbit-go/gq/internal/cpu"

func init() {
	registerRows(cpu.AVX2, 1, map[string]func(*RowArgs){
		"Q2_K": gemvQ2KAVX2, "Q3_K": gemvQ3KAVX2, "Q4_K": gemvQ4KAVX2, "Q5_K": gemvQ5KAVX2, "Q6_K": gemvQ6KAVX2,
		"IQ4_XS": gemvIQ4XSAVX2, "TQ2_0": gemvTQ20AVX2, "TQ1_0": gemvTQ10AVX2,
		"IQ2_XXS": gemvIQ2XXSAVX2, "IQ2_XS": gemvIQ2XSAVX2, "IQ2_S": gemvIQ2SAVX2, "IQ3_XXS": gemvIQ3XXSAVX2, "IQ3_S": gemvIQ3SAVX2,
		"IQ1_S": gemvIQ1SAVX2, "IQ1_M": gemvIQ1MAVX2,
	})
	registerRows(cpu.AVX2, 8, map[string]func(*RowArgs){
		"Q4_0": gemvQ40AVX2, "Q4_1": gemvQ41AVX2, "Q5_0": gemvQ50AVX2, "Q5_1": gemvQ51AVX2, "Q8_0": gemvQ80AVX2, "IQ4_NL": gemvIQ4NLAVX2,
		"MXFP4": gemvMXFP4AVX2, "NVFP4": gemvNVFP4AVX2,
	})
	registerRows(cpu.AVXVNNI, 8, map[string]func(*RowArgs){
		"Q4_0": gemvQ40AVXVNNI, "Q4_1": gemvQ41AVXVNNI, "Q5_0": gemvQ50AVXVNNI, "Q5_1": gemvQ51AVXVNNI, "Q8_0": gemvQ80AVXVNNI,
		"IQ4_NL": gemvIQ4NLAVXVNNI, "MXFP4": gemvMXFP4AVXVNNI, "NVFP4": gemvNVFP4AVXVNNI,
	})
	registerRows(cpu.AVX512, 8, map[string]func(*RowArgs){
		"Q4_0": gemvQ40AVX512, "Q4_1": gemvQ41AVX512, "Q5_0": gemvQ50AVX512, "Q5_1": gemvQ51AVX512, "Q8_0": gemvQ80AVX512,
		"IQ4_NL": gemvIQ4NLAVX512, "MXFP4": gemvMXFP4AVX512, "NVFP4": gemvNVFP4AVX512,
	})
	registerRows(cpu.AVX512, 1, map[string]func(*RowArgs){
		"Q2_K": gemvQ2KAVX512, "Q3_K": gemvQ3KAVX512, "Q4_K": gemvQ4KAVX512, "Q5_K": gemvQ5KAVX512, "Q6_K": gemvQ6KAVX512,
		"IQ4_XS": gemvIQ4XSAVX512, "TQ2_0": gemvTQ20AVX512,
	})
	registerUnpack(cpu.AVX2, map[string]Unpack{
		"Q2_K": unpackQ2KAVX2, "Q3_K": unpackQ3KAVX2, "Q4_K": unpackQ4KAVX2, "Q5_K": unpackQ5KAVX2, "Q6_K": unpackQ6KAVX2,
		"IQ4_XS": unpackIQ4XSAVX2, "TQ2_0": unpackTQ20AVX2, "TQ1_0": unpackTQ10AVX2,
		"IQ2_XXS": unpackIQ2XXSAVX2, "IQ2_XS": unpackIQ2XSAVX2, "IQ2_S": unpackIQ2SAVX2, "IQ3_XXS": unpackIQ3XXSAVX2, "IQ3_S": unpackIQ3SAVX2,
		"IQ1_S": unpackIQ1SAVX2, "IQ1_M": unpackIQ1MAVX2,
		"Q4_0": unpackQ40AVX2, "Q4_1": unpackQ41AVX2, "Q5_0": unpackQ50AVX2, "Q5_1": unpackQ51AVX2, "Q8_0": unpackQ80AVX2, "IQ4_NL": unpackIQ4NLAVX2,
		"MXFP4": unpackMXFP4AVX2, "NVFP4": unpackNVFP4AVX2,
	})
}
