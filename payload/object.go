package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// maxConfig bounds a config: the longest published ones, with per-tensor
// quantization lists, are below 1 MiB.
const maxConfig = 8 << 20

// object is a JSON object with its path, so that an error names the field.
type object struct {
	path   string // "" or "text_config."
	fields map[string]any
}

// decodeObject reads one JSON object. NaN and Infinity, which Python writes but JSON does
// not have, are read as null.
func decodeObject(r io.Reader) (object, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return object{}, fmt.Errorf("read config: %w", err)
	}
	if len(text) > maxConfig {
		return object{}, fmt.Errorf("read config: it is longer than %d MiB; give a model's config.json", maxConfig>>20)
	}
	text = nullNumbers(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return object{}, fmt.Errorf("read config: %w; give a model's config.json", err)
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return object{}, fmt.Errorf("read config: it is no JSON object; give a model's config.json")
	}
	if _, err := d.Token(); err != io.EOF {
		return object{}, fmt.Errorf("read config: more follows the JSON object; give one config.json")
	}
	return object{fields: fields}, nil
}

// nullNumbers replaces NaN, Infinity and -Infinity outside strings with null.
func nullNumbers(text []byte) []byte {
	out := make([]byte, 0, len(text))
	inString := false
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case inString && c == '\\' && i+1 < len(text):
			out = append(out, c, text[i+1])
			i += 2
			continue
		case c == '"':
			inString = !inString
		case !inString:
			if n := notNumber(text[i:]); n > 0 {
				out = append(out, "null"...)
				i += n
				continue
			}
		}
		out = append(out, c)
		i++
	}
	return out
}

func notNumber(text []byte) int {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(text, []byte(word)) {
			return len(word)
		}
	}
	return 0
}

// child returns a nested object; false if there is none.
func (o object) child(name string) (object, bool) {
	fields, ok := o.fields[name].(map[string]any)
	return object{o.path + name + ".", fields}, ok
}

// has reports whether a field is present and not null.
func (o object) has(name string) bool { return o.fields[name] != nil }

// hasAny reports whether any of several fields is present and not null.
func (o object) hasAny(names ...string) bool {
	for _, name := range names {
		if o.has(name) {
			return true
		}
	}
	return false
}

// fault returns an error that names a field.
func (o object) fault(name, why string, args ...any) error {
	return fmt.Errorf("read config: %s%s %s", o.path, name, fmt.Sprintf(why, args...))
}

// show prints a JSON value briefly.
func show(v any) string {
	switch v := v.(type) {
	case json.Number:
		return fmt.Sprintf("%.30s", v.String())
	case string:
		return fmt.Sprintf("%.30q", v)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "null"
}

// number returns a whole number from low to high; false if the field is absent or null.
func (o object) number(name string, low, high int64) (int64, bool, error) {
	v := o.fields[name]
	if v == nil {
		return 0, false, nil
	}
	n, ok := whole(v)
	if !ok || n < low || n > high {
		return 0, false, o.fault(name, "is %s; it has to be a whole number from %d to %d", show(v), low, high)
	}
	return n, true, nil
}

// whole reads a JSON number without a fraction.
func whole(v any) (int64, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if n, err := strconv.ParseInt(number.String(), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(number.String(), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// numbers returns a list of whole numbers from low to high; nil if the field is absent or
// null.
func (o object) numbers(name string, low, high int64) ([]int64, error) {
	v := o.fields[name]
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, o.fault(name, "is %s; it has to be a list of whole numbers", show(v))
	}
	numbers := make([]int64, 0, min(len(list), maxLayers))
	for i, e := range list {
		n, ok := whole(e)
		if !ok || n < low || n > high {
			return nil, o.fault(fmt.Sprintf("%s[%d]", name, i), "is %s; it has to be a whole number from %d to %d", show(e), low, high)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// words returns a list of strings; nil if the field is absent, null or no list.
func (o object) words(name string) ([]string, error) {
	list, ok := o.fields[name].([]any)
	if !ok {
		return nil, nil
	}
	words := make([]string, 0, min(len(list), maxLayers))
	for i, e := range list {
		s, ok := e.(string)
		if !ok {
			return nil, o.fault(fmt.Sprintf("%s[%d]", name, i), "is %s; it has to be a string", show(e))
		}
		words = append(words, s)
	}
	return words, nil
}

// text returns a string field; "" if it is absent or no string.
func (o object) text(name string) string {
	s, _ := o.fields[name].(string)
	return s
}

// flag returns a boolean field, or the model class's value if it is absent or null.
func (o object) flag(name string, class bool) bool {
	if b, ok := o.fields[name].(bool); ok {
		return b
	}
	return class
}
