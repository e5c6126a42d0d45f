// Package payloads turns the flags that name packed weights into packed headers, for commands that
// measure or list kernels.
package payloads

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// Request holds the values of the flags.
type Request struct {
	Layouts []Layout
	Bits    []int
	Groups  []uint64 // 0: channel
	Zeros   bool     // with zero points
	// The flag was not given, so its defaults may include values that do not fit.
	anyLayout, anyBits, anyGroup bool
}

// Layout is a layout, and a tile if one was stated.
type Layout struct {
	Layout packing.Layout
	Tile   packing.Tile
}

// Flags are the flags that FromFlags reads. layouts and groups describe the defaults.
func Flags(layouts, groups string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "layout", DefaultText: layouts, Usage: "`LIST` of layouts of packed weights, each with a tile if need be: lowbit,qsi8cxp:4x4x1"},
		&cli.StringFlag{Name: "bits", DefaultText: "all of the layout", Usage: "`LIST` of bits of a code: 1,2,4"},
		&cli.StringFlag{Name: "group", Aliases: []string{"groups"}, DefaultText: groups, Usage: "`LIST` of groups: 32,128,channel"},
		&cli.BoolFlag{Name: "zeros", Usage: "weights with zero points"},
	}
}

// FromFlags reads the flags. layouts and groups are the defaults.
func FromFlags(c *cli.Context, layouts []packing.Layout, groups []uint64) (*Request, error) {
	r := &Request{Zeros: c.Bool("zeros"), Groups: groups, Bits: []int{1, 2, 3, 4, 5, 6, 7, 8}, anyLayout: !c.IsSet("layout"), anyBits: !c.IsSet("bits"), anyGroup: !c.IsSet("group")}
	for _, l := range layouts {
		r.Layouts = append(r.Layouts, Layout{Layout: l})
	}
	if !r.anyLayout {
		list, err := each(c.String("layout"), parseLayout)
		if err != nil {
			return nil, cmdline.Usagef("--layout: %w", err)
		}
		r.Layouts = list
	}
	if !r.anyBits {
		list, err := Ints(c, "bits", 1, 8)
		if err != nil {
			return nil, err
		}
		r.Bits = list
	}
	if !r.anyGroup {
		list, err := each(c.String("group"), parseGroup)
		if err != nil {
			return nil, cmdline.Usagef("--group: %w", err)
		}
		r.Groups = list
	}
	return r, nil
}

// Floats reports whether float weights are requested: LayoutPlain, and no width or group.
func (r *Request) Floats() bool {
	plain := slices.ContainsFunc(r.Layouts, func(l Layout) bool { return l.Layout == packing.LayoutPlain })
	return plain && r.anyBits && r.anyGroup && !r.Zeros
}

// AnyTile reports whether a layout was requested without a tile.
func (r *Request) AnyTile(l packing.Layout) bool {
	return slices.Contains(r.Layouts, Layout{Layout: l})
}

// CPU lists the instruction sets that --cpu allows, from the least to the best.
func CPU(name string) ([]string, error) {
	list, err := cpu.UpTo(name)
	if err != nil {
		return nil, cmdline.Usagef("--cpu: %v", err)
	}
	return list, nil
}

// Words reads a flag that lists words, each once; nil if it was not given.
func Words(c *cli.Context, name string) ([]string, error) {
	if !c.IsSet(name) {
		return nil, nil
	}
	list, err := each(c.String(name), func(s string) (string, error) { return s, nil })
	if err != nil {
		return nil, cmdline.Usagef("--%s: %w", name, err)
	}
	return list, nil
}

// Ints reads the flag name, a list of numbers from least to most.
func Ints(c *cli.Context, name string, least, most int) ([]int, error) {
	list, err := each(c.String(name), func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not a number from %d to %d", s, least, most)
		}
		return n, nil
	})
	if err != nil {
		return nil, cmdline.Usagef("--%s: %w", name, err)
	}
	return list, nil
}

// each reads a list.
func each[T comparable](s string, parse func(string) (T, error)) (list []T, err error) {
	for _, word := range strings.Split(s, ",") {
		x, err := parse(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if slices.Contains(list, x) {
			return nil, fmt.Errorf("%q is there twice", word)
		}
		list = append(list, x)
	}
	return list, nil
}

func parseLayout(s string) (Layout, error) {
	name, tile, tiled := strings.Cut(s, ":")
	l, ok := packing.ParseLayout(name)
	if !ok {
		var names []string
		for _, l := range packing.Layouts {
			names = append(names, l.String())
		}
		return Layout{}, fmt.Errorf("unknown layout %q: use %s, each alone or with a tile (lowbit:4x8x2)", s, strings.Join(names, ", "))
	}
	f := Layout{Layout: l}
	if tiled {
		var err error
		if f.Tile, err = packing.ParseTile(tile); err != nil {
			return Layout{}, err
		}
	}
	return f, nil
}

func parseGroup(s string) (uint64, error) {
	if s == "channel" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 || n%16 != 0 {
		return 0, fmt.Errorf("%q: use a multiple of 16, or channel", s)
	}
	return n, nil
}

// Headers returns a header for each compatible combination of layout, width and group, for weights
// of shape(group). A requested layout, width or group that fits no combination is a usage error,
// and so is a layout that no kernel reads. LayoutPlain, which has no bits and groups, is left out.
func (r *Request) Headers(shape func(group uint64) (rows, cols uint64)) ([]packing.Header, error) {
	var headers []packing.Header
	var layouts uses[Layout]
	var bits uses[int]
	var groups uses[uint64]
	for _, l := range r.Layouts {
		if l.Layout == packing.LayoutPlain {
			continue
		}
		for _, b := range r.Bits {
			list := r.Groups
			if r.anyGroup && !slices.ContainsFunc(list, func(g uint64) bool { _, err := r.header(l, b, g, shape); return err == nil }) {
				list = []uint64{0} // a layout with one scale per row
			}
			for _, g := range list {
				h, err := r.header(l, b, g, shape)
				if err == nil {
					headers = append(headers, h)
				} else if r.anyBits && field(err) == "bits" {
					continue // the width was not requested
				}
				layouts.note(l, err)
				bits.note(b, err)
				groups.note(g, err)
			}
		}
	}
	for _, err := range []error{layouts.unused(r.anyLayout), bits.unused(r.anyBits), groups.unused(r.anyGroup)} {
		if bad, ok := errors.AsType[*packing.HeaderError](err); ok {
			return nil, cmdline.Usagef("%s", bad.Msg) // no header exists, so nothing else can be wrong
		} else if err != nil {
			return nil, cmdline.Usagef("%w", err)
		}
	}
	return headers, nil
}

// header is the header with the first dtype of scales and kind of zero points that the layout has.
func (r *Request) header(l Layout, bits int, group uint64, shape func(group uint64) (rows, cols uint64)) (packing.Header, error) {
	h := packing.Header{Layout: l.Layout, Bits: uint8(bits), Tile: l.Tile, Group: group}
	h.Rows, h.Cols = shape(group)
	if tiles := l.Layout.Tiles(); l.Tile == (packing.Tile{}) && len(tiles) > 0 {
		h.Tile = tiles[len(tiles)-1] // the one for i8mm, and lowbit's default
	}
	zeros := []packing.ZeroKind{packing.ZeroInt8, packing.ZeroF32}
	if !r.Zeros {
		zeros = []packing.ZeroKind{packing.ZeroNone, packing.ZeroF32} // qai4c32p has no other
	}
	var most error
	for _, h.ZeroKind = range zeros {
		for _, h.ScaleDtype = range []packing.ScaleDtype{packing.ScaleBF16, packing.ScaleF16, packing.ScaleF32} {
			h := h.Canonical()
			_, err := kernels.KernelFor(h, 1, kernels.Options{CPU: "generic"})
			if err == nil {
				return h, nil
			}
			if most == nil || weight(err) > weight(most) {
				most = err
			}
		}
	}
	return packing.Header{}, most
}

// weight ranks errors by how informative they are. Errors about choices of header itself rank last.
func weight(err error) int {
	switch field(err) {
	case "scale dtype":
		return 0
	case "zero kind":
		return 1
	}
	return 2
}

// field is the field that a *packing.HeaderError reports.
func field(err error) string {
	if bad, ok := errors.AsType[*packing.HeaderError](err); ok {
		return bad.Field
	}
	return ""
}

// uses records the error of each value of a flag, in order: nil once a combination with it fits.
type uses[T comparable] struct {
	values []T
	errs   []error
}

func (u *uses[T]) note(x T, err error) {
	i := slices.Index(u.values, x)
	switch {
	case i < 0:
		u.values, u.errs = append(u.values, x), append(u.errs, err)
	case u.errs[i] != nil:
		u.errs[i] = err
	}
}

// unused returns the error of the first value that fits no combination. With any, one fitting value
// suffices.
func (u *uses[T]) unused(any bool) error {
	if any && slices.Contains(u.errs, nil) {
		return nil
	}
	for _, err := range u.errs {
		if err != nil {
			return err
		}
	}
	return nil
}
