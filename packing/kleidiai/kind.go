package kleidiai

import "fmt"

// Kind is a layout of packed weights, named as in KleidiAI's function names.
// "cx" layouts have a scale per row, "c32" ones per group ("block length", bl)
// of columns.
type Kind uint8

// The kinds. The packers named make them, each kai_run_rhs_pack_...
const (
	// QSI4C32P: 4 bits, BF16 scales. nxk_ and kxn_qsi4c32p_qsu4c32s1s0,
	// nxk_qsi4c32pnrx4_ and nxk_qsi4c32pnrx8_qsu4c32s1s0_neon, see SumOrder.
	QSI4C32P Kind = iota + 1
	// QSI4C32PS1S0NRX4: the same for SME2.
	// nxk_qsi4c32ps1s0nrx4_qsu4c32s1s0_neon.
	QSI4C32PS1S0NRX4
	// QSI4C32PScaleF16: 4 bits, F16 scales. nxk_qsi4c32pscalef16_qsu4c32s16s0.
	QSI4C32PScaleF16
	// QSI4C32PS1S0ScaleF16: the same for SME2.
	// nxk_qsi4c32ps1s0scalef16_qsu4c32s16s0_neon.
	QSI4C32PS1S0ScaleF16
	// QSI4C32PS4S0SF16: the same for SME. nxk_qsi4c32ps4s0sf16_qsu4c32s16s0_neon.
	QSI4C32PS4S0SF16
	// QSI4CXP: 4 bits, F32 scales. nxk_ and kxn_qsi4cxp_qs4cxs1s0.
	QSI4CXP
	// QSI4CXPS1S0: the same for SME2. nxk_qsi4cxps1s0_qsu4cxs1s0_neon.
	QSI4CXPS1S0
	// QSI8CXP: 8 bits, F32 scales. nxk_ and kxn_qsi8cxp_qsi8cx_neon.
	QSI8CXP
	// QAI4C32P: 4 bits, F32 scales and zero points.
	// nxk_qai4c32p_qau4c32s0s1_f32_f32_f32_neon.
	QAI4C32P
	// QAI4C32PS1S0NRX4: the same for SME2.
	// nxk_qai4c32ps1s0nrx4_qau4c32s0s1_ and _qau4c32s1s0_f32_f32_f32_neon: the
	// two differ in their input only.
	QAI4C32PS1S0NRX4
	// QSU2CXP4X4: 2 bits, F32 scales. nxk_qsu2cxp4x4bf32sf32_qsu2cx_neon.
	QSU2CXP4X4
	// QSU2CXP4VLX4: the same for SME2. nxk_qsu2cxp4vlx4_qsu2cx_neon.
	QSU2CXP4VLX4
)

var kindNames = map[Kind]string{
	QSI4C32P: "qsi4c32p", QSI4C32PS1S0NRX4: "qsi4c32ps1s0nrx4", QSI4C32PScaleF16: "qsi4c32pscalef16",
	QSI4C32PS1S0ScaleF16: "qsi4c32ps1s0scalef16", QSI4C32PS4S0SF16: "qsi4c32ps4s0sf16", QSI4CXP: "qsi4cxp",
	QSI4CXPS1S0: "qsi4cxps1s0", QSI8CXP: "qsi8cxp", QAI4C32P: "qai4c32p", QAI4C32PS1S0NRX4: "qai4c32ps1s0nrx4",
	QSU2CXP4X4: "qsu2cxp4x4", QSU2CXP4VLX4: "qsu2cxp4vlx4",
}

// String gives KleidiAI's name, "qsi4c32p"; "unknown(0)" for other values.
func (k Kind) String() string {
	if name := kindNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// SumOrder is the order in which the float32 sum of a row of QSI4C32P adds up
// its terms. The sums differ in their last bits where the scales of a row
// differ much.
type SumOrder uint8

// The orders.
const (
	// SumSegments adds a term for each kr/sr columns of both halves of 32:
	// the packers without a suffix, which PyTorch and XNNPACK call. Default.
	SumSegments SumOrder = iota
	// SumBlocks adds a term for each 32 columns: the packers called nrx4 and
	// nrx8.
	SumBlocks
)

// RHSConfig describes a packed matrix of weights.
type RHSConfig struct {
	Kind Kind // no default
	// N is the number of rows (outputs), K of columns (inputs). No defaults.
	N, K int
	// BL is the number of columns that share a scale, a multiple of 32 that
	// divides K. Default: K. The "cx" kinds have no groups.
	BL int
	// NR is the number of rows of a panel. SME kinds that say "vl" in
	// KleidiAI's names have NR = 4*VL, where VL is the streaming vector length
	// in units of 4 bytes. No default.
	NR int
	// KR and SR are KleidiAI's packing parameters. No defaults.
	KR, SR int
	// Sums is the order of the sums of QSI4C32P. Default SumSegments.
	Sums SumOrder
	// LHSZeroPoint multiplies the sums of QSI8CXP. Default 1, which is what
	// every known caller uses; KleidiAI's kernels want it.
	LHSZeroPoint int
	// LUT gives the values of the codes -2, -1, 0, 1 in the sums of the
	// QSU2CXP kinds. Default -2, -1, 0, 1.
	LUT *[4]int32
}
