package jsonscan

const (
	// indexedBytes is the size from which an Index has an array or object. Below it, reading the value again
	// costs less than an entry.
	indexedBytes = 1 << 10
	// PartElements is how many elements or members a Part has; the last one has fewer.
	PartElements = 1 << 13
)

// An Index knows the large arrays and objects of a checked text by their positions, so that nobody reads a
// text of megabytes again to find where one ends, or where its middle is.
type Index map[int]large

// large is an array or object.
type large struct {
	end   int
	count int   // elements or members
	parts []int // where each part but the first one begins
}

// A Part is some consecutive elements of an array, or members of an object.
type Part struct {
	First int // index of the first one
	Count int
	At    int // position of the first one: of its key, in an object
}

// Index skips a value as Skip does, and returns its Index.
func (s *Scanner) Index(what string) (Index, error) {
	s.index = Index{}
	err := s.skip(what, MaxDepth)
	ix := s.index
	s.index = nil
	return ix, err
}

// End returns the end of the value that starts at i. The Index may be nil.
func (ix Index) End(text []byte, i int) int {
	if l, ok := ix[i]; ok {
		return l.end
	}
	return End(text, i)
}

// Parts divides the array or object that starts at i, for several goroutines.
func (ix Index) Parts(text []byte, i int) (list []Part) {
	l, ok := ix[i]
	if !ok {
		for range Elements(text, i, End(text, i), ix) {
			l.count++
		}
	}
	if l.count == 0 {
		return nil
	}
	list = append(list, Part{At: SkipSpace(text, i+1)})
	for _, at := range l.parts {
		list = append(list, Part{First: len(list) * PartElements, At: at})
	}
	for i := range list {
		list[i].Count = min(PartElements, l.count-list[i].First)
	}
	return list
}
