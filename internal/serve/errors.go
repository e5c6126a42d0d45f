package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// An apiError is an error in OpenAI's shape. Its message never holds a path of the machine.
type apiError struct {
	status     int
	retryAfter int // seconds; 0: no such header
	message    string
	param      string // the field that is wrong; "": none
	code       string // a word for programs; "": none
}

func (e *apiError) Error() string { return e.message }

// kind is OpenAI's word for the class of the error, derived from the status.
func (e *apiError) kind() string {
	switch {
	case e.status == http.StatusUnauthorized:
		return "authentication_error"
	case e.status == http.StatusForbidden:
		return "permission_error"
	case e.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// MarshalJSON writes the object around the error, too.
func (e *apiError) MarshalJSON() ([]byte, error) {
	optional := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	return json.Marshal(struct {
		Error body `json:"error"`
	}{body{e.message, e.kind(), optional(e.param), optional(e.code)}})
}

// Words for programs, in the field code, with OpenAI's spelling if OpenAI has the word.
const (
	codeBusy     = "server_busy"
	codeContext  = "context_length_exceeded"
	codeDraining = "server_draining"
	codeHost     = "host_not_allowed"
	codeKey      = "invalid_api_key"
	codeMethod   = "method_not_allowed"
	codeModel    = "model_not_found"
	codeOrigin   = "origin_not_allowed"
	codeTimeout  = "request_timeout"
	codeTooLarge = "request_too_large"
	codeType     = "unsupported_content_type"
	codeUnknown  = "unknown_field"
	codeUnmet    = "unsupported_field"
	codeURL      = "unknown_url"
	codeValue    = "invalid_value"
)

// invalid says that the value of a field cannot be used.
func invalid(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, param: param, code: codeValue, message: fmt.Sprintf(format, args...)}
}

// errInternal is all that a client is told about a failure of the server.
var errInternal = &apiError{status: http.StatusInternalServerError, message: "the server failed to compute this answer; its log says why", code: "internal_error"}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b := mustJSON(v)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(status)
	// The client is gone if this fails.
	_, _ = w.Write(append(b, '\n'))
}
