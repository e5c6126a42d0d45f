package main

import "fmt"

// instructions is the column of executed instructions per multiply-accumulate.
const instructions = "instructions"

// product compares gq with a kernel of another library on arm64: 2048 outputs and inputs.
type armProduct struct {
	name    string // layout and tile
	cpu     string // gq's kernels
	payload string // of BenchmarkForward
	m       int
	family  string // KleidiAI's folder, without matmul_clamp_f32_; "": TorchAO
	kernel  string // KleidiAI's, likewise
	pack    string // of activations, without lhs_quant_pack_
	flags   string // of kleidiai.c or torchao.cc
}

const (
	dx     = "qai8dxp_f32"
	d32    = "qsi8d32p_f32_neon"
	d32f   = "qsi8d32pscalef32_f32_neon"
	group  = "-DBL=32 "
	both32 = group + "-DPACK_BL "
)

var armProducts = []armProduct{
	{"qsi4c32p 8x16x2, group 32", "dotprod", "lowbit,8x16x2,4,bf16,none,32", 1, "qai8dxp_qsi4c32p", "qai8dxp1x8_qsi4c32p8x8_1x8x32_neon_dotprod", dx, group},
	{"qsi4c32p 4x8x2, group 32", "dotprod", "lowbit,4x8x2,4,bf16,none,32", 1, "qai8dxp_qsi4c32p", "qai8dxp1x4_qsi4c32p4x4_1x4_neon_dotprod", dx, group},
	{"qsi4c32p 4x16x2, group 32", "i8mm", "lowbit,4x16x2,4,bf16,none,32", 128, "qai8dxp_qsi4c32p", "qai8dxp4x8_qsi4c32p4x8_16x4x32_neon_i8mm", dx, group},
	{"qsi4cxp 8x16x2", "dotprod", "qsi4cxp,8x16x2,4,f32,none,0", 1, "qai8dxp_qsi4cxp", "qai8dxp1x8_qsi4cxp8x8_1x8x32_neon_dotprod", dx, ""},
	{"qsi4cxp 8x16x2", "i8mm", "qsi4cxp,8x16x2,4,f32,none,0", 128, "qai8dxp_qsi4cxp", "qai8dxp4x8_qsi4cxp8x8_8x8x32_neon_i8mm", dx, ""},
	{"qsi8cxp 4x8x1", "dotprod", "qsi8cxp,4x8x1,8,f32,none,0", 1, "qai8dxp_qsi8cxp", "qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod", dx, ""},
	{"qsi8cxp 4x8x1", "i8mm", "qsi8cxp,4x8x1,8,f32,none,0", 128, "qai8dxp_qsi8cxp", "qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm", dx, ""},
	{"qsi4c32p-f16 4x16x2", "dotprod", "qsi4c32p-f16,4x16x2,4,f16,none,32", 1, "qsi8d32p_qsi4c32p", "qsi8d32p1x8_qsi4c32p4x8_1x4x32_neon_dotprod", d32, both32},
	{"qsi4c32p-f16 4x16x2", "i8mm", "qsi4c32p-f16,4x16x2,4,f16,none,32", 128, "qsi8d32p_qsi4c32p", "qsi8d32p4x8_qsi4c32p4x8_8x4x32_neon_i8mm", d32, both32},
	{"qai4c32p 4x16x2", "dotprod", "qai4c32p,4x16x2,4,f32,f32,32", 1, "qsi8d32p_qai4c32p", "qsi8d32p1x8_qai4c32p4x8_1x4_neon_dotprod", d32f, both32},
	{"qai4c32p 4x16x2", "i8mm", "qai4c32p,4x16x2,4,f32,f32,32", 128, "qsi8d32p_qai4c32p", "qsi8d32p4x8_qai4c32p4x8_8x4_neon_i8mm", d32f, both32},
	{"torchao-linear 4 bits, group 32", "dotprod", "torchao-linear,8x16x2,4,f32,none,32", 1, "", "", "", "-DBITS=4 "},
}

// arm counts instructions of whole products, with the packing of activations.
func arm() table {
	t := table{name: "arm", columns: []column{{instructions, "instructions per multiply-accumulate", "%.4f"}}, ratios: []string{"gq / the other"}}
	emulator := []string{"qemu-aarch64", "$PLUGIN"}
	for _, p := range armProducts {
		library, tools, build := "KleidiAI", []string{"$CC", "$KLEIDIAI/kai"}, p.kleidiai()
		if p.family == "" {
			library, tools, build = "TorchAO", []string{"$CXX", "$TORCHAO/torchao"}, p.torchao()
		}
		name := fmt.Sprintf("%s, m = %d: ", p.name, p.m)
		t.rows = append(t.rows, row{
			name: name + "gq", command: fmt.Sprintf("go run -C tools ./kernels -plugin $PLUGIN '^%s/%s/%d$'", p.cpu, p.payload, p.m),
			repo: true, tools: emulator, against: []string{name + library}, once: true, counted: true, parse: parseCounted,
		}, row{
			name: name + library, command: build + " && for n in 1 3; do qemu-aarch64 -cpu max -plugin $PLUGIN -d plugin $WORK/product $n 2>&1; done",
			repo: true, tools: append(tools, emulator...), once: true, counted: true,
			parse: func(out []byte) (map[string]float64, error) { return parseCounts(out, p.m) },
		})
	}
	return t
}

// kleidiai compiles arm/kleidiai.c with a kernel and a function that packs activations.
func (p armProduct) kleidiai() string {
	kernel, pack := "matmul_clamp_f32_"+p.kernel, "lhs_quant_pack_"+p.pack
	folder := "kai/ukernels/matmul/matmul_clamp_f32_" + p.family
	return fmt.Sprintf(`$CC -O3 -DNDEBUG -static -march=armv8.2-a+dotprod+i8mm -DM=%d %s-DKERNEL=%s -DPACK=%s '-DKERNEL_H=<%s/kai_%s.h>' '-DPACK_H=<kai/ukernels/matmul/pack/kai_%s.h>' -I$KLEIDIAI tools/speed/arm/kleidiai.c $KLEIDIAI/%s/kai_%s*.[cS] $KLEIDIAI/kai/ukernels/matmul/pack/kai_%s.c -o $WORK/product`,
		p.m, p.flags, kernel, pack, folder, kernel, pack, folder, kernel, pack)
}

// torchao compiles arm/torchao.cc.
func (p armProduct) torchao() string {
	const folder = "$TORCHAO/torchao/csrc/cpu/torch_free_kernels/aarch64"
	return fmt.Sprintf("$CXX -O3 -DNDEBUG -std=c++17 -static -march=armv8.2-a+dotprod -DTORCHAO_BUILD_CPU_AARCH64 %s-I$TORCHAO tools/speed/arm/torchao.cc %s/reduction/*.cpp %s/quantization/*.cpp -o $WORK/product", p.flags, folder, folder)
}
