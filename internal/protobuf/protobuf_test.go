package protobuf

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestFields(t *testing.T) {
	message := "\x08\x96\x01" + "\x12\x02hi" + "\x1d\x01\x02\x03\x04" + "\x21\x01\x02\x03\x04\x05\x06\x07\x08"
	var got []Field
	err := Fields([]byte(message), 10, func(f Field) error { got = append(got, f); return nil })
	want := []Field{{1, 0, 13, nil, 150}, {2, 2, 15, []byte("hi"), 0}, {3, 5, 18, []byte{1, 2, 3, 4}, 0}, {4, 1, 23, []byte{1, 2, 3, 4, 5, 6, 7, 8}, 0}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	stop := errors.New("stop")
	if err := Fields([]byte(message), 0, func(Field) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	for message, want := range map[string]string{
		"\x80": "byte 5: a tag is cut off", "\x00": "byte 5: a field of number 0", "\x08\x80": "byte 6: an integer is cut off",
		"\x12\x80": "byte 6: a length is cut off", "\x12\x05hi": "byte 7: a field of 5 bytes, 2 are left", "\x0b": "byte 6: a field of unknown type 3",
		"\x1d\x01": "byte 6: a field of 4 bytes, 1 are left",
	} {
		if err := Fields([]byte(message), 5, func(Field) error { return nil }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", message, err, want)
		}
	}
}
