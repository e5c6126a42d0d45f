package run

import (
	"errors"
	"io"
	"slices"
	"testing"
)

// TestConverse checks which errors end a conversation whose failures are only reported.
func TestConverse(t *testing.T) {
	broken := errors.New("the terminal is gone")
	for _, tt := range []struct {
		name     string
		lines    []any // what next returns: lines and errors
		answered []string
		reported int
		end      error
	}{
		{"messages", []any{"a", "b\\", "c", io.EOF}, []string{"a", "b\nc"}, 0, nil},
		{"refused", []any{"a", "\xff", "b", refusedf("too long"), "c", io.EOF}, []string{"a", "b", "c"}, 2, nil},
		{"a failed answer", []any{"fail", "b", io.EOF}, []string{"fail", "b"}, 1, nil},
		{"a broken terminal", []any{"a", broken, "b", io.EOF}, []string{"a"}, 0, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var answered []string
			reported := 0
			next := func(bool) (string, error) {
				v := tt.lines[0]
				tt.lines = tt.lines[1:]
				if err, ok := v.(error); ok {
					return "", err
				}
				return v.(string), nil
			}
			answer := func(message string) error {
				answered = append(answered, message)
				if message == "fail" {
					return errors.New("no answer")
				}
				return nil
			}
			err := (&talker{}).converse(next, answer, func(error) error { reported++; return nil })
			if err != tt.end || !slices.Equal(answered, tt.answered) || reported != tt.reported {
				t.Errorf("%q were answered, %d errors reported, and it ended with %v", answered, reported, err)
			}
		})
	}
}
