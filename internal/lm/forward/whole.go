package forward

// whole is embedded in parts that factors and rotations leave alone.
type whole struct{}

func (whole) last() *linear             { return nil }
func (whole) scalings(*Model) []Scaling { return nil }
func (whole) readers(*Model) []Block    { return nil }
func (whole) writers() []Block          { return nil }
