package emit

// field is some bits of a code: the byte of a plane, shifted right (left if negative), under mask.
type field struct {
	plane, shift int
	mask         uint8
}

// fields are the parts of the codes in a lane of a unit of 128 codes: unpackPair of package
// packing, lane by lane.
func fields(bits, lane int) []field {
	m, odd := lane/2, lane%2
	switch bits {
	case 1:
		return []field{{0, 7 - lane, 1}}
	case 2:
		return []field{{lane / 4, 6 - 2*(lane%4), 3}}
	case 3:
		if lane < 6 {
			return []field{{m, 3 - 3*odd, 7}}
		}
		return []field{{odd, 6, 3}, {2, 5 - odd, 4}}
	case 4:
		return []field{{m, 4 * odd, 15}}
	case 5:
		if odd == 0 {
			return []field{{m, 0, 31}}
		}
		return []field{{m, 5, 7}, {4, 2*m - 3, 0x18}}
	case 6:
		p := lane / 4 * 3
		if lane%4 < 3 {
			return []field{{p + lane%4, 0, 63}}
		}
		return []field{{p, 6, 3}, {p + 1, 4, 12}, {p + 2, 2, 48}}
	case 7:
		if lane < 7 {
			return []field{{lane, 0, 127}}
		}
		var f []field
		for q := range 7 {
			f = append(f, field{q, 7 - q, 1 << q})
		}
		return f
	}
	return []field{{lane, 0, 255}}
}
