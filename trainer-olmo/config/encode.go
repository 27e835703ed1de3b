package config

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Write writes every key of c as YAML in the order of the struct. The text
// depends on c alone, and [Load] of it gives c back.
func (c *Config) Write(w io.Writer) error {
	var b bytes.Buffer
	writeGroup(&b, reflect.ValueOf(*c), 0)
	_, err := w.Write(b.Bytes())
	return err
}

// YAML is the text of [Config.Write].
func (c *Config) YAML() []byte {
	var b bytes.Buffer
	writeGroup(&b, reflect.ValueOf(*c), 0)
	return b.Bytes()
}

func writeGroup(b *bytes.Buffer, v reflect.Value, indent int) {
	t := v.Type()
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		pad := strings.Repeat("  ", indent)
		fv := v.Field(i)
		switch {
		case fv.Kind() == reflect.Struct:
			fmt.Fprintf(b, "%s%s:\n", pad, name)
			writeGroup(b, fv, indent+1)
		case fv.Kind() == reflect.Slice && fv.Type().Elem().Kind() == reflect.String && fv.Len() > 0:
			fmt.Fprintf(b, "%s%s:\n", pad, name)
			for j := range fv.Len() {
				fmt.Fprintf(b, "%s  - %s\n", pad, format(fv.Index(j)))
			}
		default:
			fmt.Fprintf(b, "%s%s: %s\n", pad, name, format(fv))
		}
	}
}

// format writes one value as YAML that the decoder reads back exactly.
func format(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Size:
		return x.String()
	case time.Duration:
		return x.String()
	}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case reflect.Slice, reflect.Array:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = format(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return "null"
}

// quote writes a text plainly when no YAML reader could take it for anything
// else, and in double quotes otherwise.
func quote(s string) string {
	if s != "" && plain(s) && !strings.Contains(" true false null yes no on off y n ", " "+strings.ToLower(s)+" ") {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// plain accepts texts that begin with a letter, '/' or '.' before a letter and
// hold only characters without a meaning in YAML.
func plain(s string) bool {
	first := strings.TrimLeft(s, "./")
	if first == "" || !isLetter(first[0]) {
		return false
	}
	for i := range len(s) {
		if !isLetter(s[i]) && !strings.ContainsRune("0123456789_-./+", rune(s[i])) {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
