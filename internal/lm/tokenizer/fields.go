package tokenizer

// fields reads the members of an object and keeps the first error, so that a component can read all
// its members and check err once.
type fields struct {
	node
	m   map[string]node
	err error
}

func (n node) fields() *fields {
	m, err := n.object()
	return &fields{n, m, err}
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// child returns the member key. A missing member is an error.
func (f *fields) child(key string) node {
	n, ok := f.m[key]
	if !ok && f.err == nil {
		f.fail(f.malformed("%q is missing", key))
	}
	return n
}

// optional returns the member key, or a null node if the member is missing or null.
func (f *fields) optional(key string) node {
	if n := f.m[key]; !n.null() {
		return n
	}
	return node{}
}

func (f *fields) typ() string { return f.str("type") }

// required reads the member key unless an error occurred.
func required[T any](f *fields, key string, read func(node) (T, error)) (v T) {
	if n := f.child(key); f.err == nil {
		v, f.err = read(n)
	}
	return v
}

func (f *fields) str(key string) string    { return required(f, key, node.str) }
func (f *fields) integer(key string) int32 { return required(f, key, node.integer) }

// optionalStr returns "" for a string that is missing or null.
func (f *fields) optionalStr(key string) string {
	if f.optional(key).null() {
		return ""
	}
	return f.str(key)
}

// optionalBool returns def for a boolean that is missing or null.
func (f *fields) optionalBool(key string, def bool) bool {
	n := f.optional(key)
	if f.err != nil || n.null() {
		return def
	}
	b, err := n.boolean()
	f.fail(err)
	return b
}

// components reads the array key of a Sequence, each element with read.
func components[T any](f *fields, key string, depth int, read func(n node, depth int) ([]T, error)) ([]T, error) {
	list := f.child(key)
	if f.err == nil && depth >= maxSequences {
		f.fail(f.malformed("sequences nest deeper than %d", maxSequences))
	}
	if f.err == nil {
		f.fail(list.array())
	}
	if f.err != nil {
		return nil, f.err
	}
	var all []T
	for _, n := range list.elements() {
		some, err := read(n, depth+1)
		if err != nil {
			return nil, err
		}
		if all = append(all, some...); len(all) > maxComponents {
			return nil, list.malformed("more than %d components", maxComponents)
		}
	}
	return all, nil
}

// Real files have at most ten components in Sequences without inner Sequences. The bounds keep a
// hostile file from making every word pass through millions.
const (
	maxSequences  = 8
	maxComponents = 64
)
