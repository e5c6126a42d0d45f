package llamacpp

import (
	"encoding/binary"
	"fmt"
	"math"
)

// sentencePieceFile holds SentencePiece's model in a checkpoint: a protocol buffer whose field 1 is
// a piece, with its text in field 1 and its score in field 2 (sentencepiece_model.proto of
// github.com/google/sentencepiece).
const sentencePieceFile = "tokenizer.model"

// piece is a token of SentencePiece.
type piece struct {
	text  string
	score float32
}

// parseSentencePiece reads the pieces of a model.
func parseSentencePiece(raw []byte) (pieces []piece, err error) {
	err = protoFields(raw, 0, func(field uint64, at int, value []byte) error {
		if field != 1 {
			return nil
		}
		var p piece
		err := protoFields(value, at, func(field uint64, at int, value []byte) error {
			switch {
			case field == 1:
				p.text = string(value)
			case field == 2 && len(value) == 4:
				p.score = math.Float32frombits(binary.LittleEndian.Uint32(value))
			case field == 2:
				return fmt.Errorf("%s: byte %d: a score of %d bytes: 4 were expected", sentencePieceFile, at, len(value))
			}
			return nil
		})
		pieces = append(pieces, p)
		return err
	})
	return pieces, err
}

// protoFields calls visit for each field of a message that starts at byte at of the file, with the
// value's offset and its bytes: nil for a variable-length integer.
func protoFields(message []byte, at int, visit func(field uint64, at int, value []byte) error) error {
	for i := 0; i < len(message); {
		malformed := func(what string) error {
			return fmt.Errorf("%s: byte %d: %s: this is no model of SentencePiece", sentencePieceFile, at+i, what)
		}
		tag, n := binary.Uvarint(message[i:])
		if n <= 0 {
			return malformed("a tag is cut off")
		}
		i += n
		size := uint64(0)
		switch tag & 7 {
		case 0:
			if _, n = binary.Uvarint(message[i:]); n <= 0 {
				return malformed("an integer is cut off")
			}
			i += n
			if err := visit(tag>>3, at+i, nil); err != nil {
				return err
			}
			continue
		case 1:
			size = 8
		case 2:
			if size, n = binary.Uvarint(message[i:]); n <= 0 {
				return malformed("a length is cut off")
			}
			i += n
		case 5:
			size = 4
		default:
			return malformed(fmt.Sprintf("a field of unknown type %d", tag&7))
		}
		if size > uint64(len(message)-i) {
			return malformed(fmt.Sprintf("a field of %d bytes, %d are left", size, len(message)-i))
		}
		if err := visit(tag>>3, at+i, message[i:i+int(size)]); err != nil {
			return err
		}
		i += int(size)
	}
	return nil
}
