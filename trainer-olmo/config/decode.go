package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	sizeType     = reflect.TypeFor[Size]()
	countType    = reflect.TypeFor[Count]()
	durationType = reflect.TypeFor[time.Duration]()
)

// decoder copies a tree into a struct and collects what is wrong with it.
type decoder struct {
	schema schema
	faults Errors
	set    map[string]string // where each key was set, by path
}

func newDecoder(t reflect.Type) *decoder {
	return &decoder{schema: schemaOf(t), set: map[string]string{}}
}

func (d *decoder) fault(at, key, format string, args ...any) {
	d.faults = append(d.faults, Fault{at, key, fmt.Sprintf(format, args...)})
}

// group fills the struct v from the mapping n.
func (d *decoder) group(n *node, v reflect.Value, path string) {
	if n.kind == nullKind {
		return
	}
	if n.kind != mapKind {
		d.fault(n.at, path, "is %s, must be a group of keys: %s", n.kind, strings.Join(d.schema.names(path), ", "))
		return
	}
	for _, e := range n.entries {
		full := join(path, e.key)
		field, ok := d.schema.fields[full]
		if !ok {
			d.fault(e.at, full, "%s", unknownKey(d.schema, path, e.key))
			continue
		}
		fv := v.FieldByIndex(field.Index)
		if field.Type.Kind() == reflect.Struct {
			d.group(e.value, fv, full)
			continue
		}
		if isGroups(field.Type) && e.value.kind == listKind {
			d.groups(e.value, fv, full)
			continue
		}
		d.set[full] = e.value.at
		d.field(e.value, fv, full, field)
	}
}

// isGroups tells a list whose items have keys of their own.
func isGroups(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// groups fills a list of structs. Faults and positions get the item's index.
func (d *decoder) groups(n *node, v reflect.Value, path string) {
	out := reflect.MakeSlice(v.Type(), len(n.list), len(n.list))
	for i, item := range n.list {
		sub := newDecoder(v.Type().Elem())
		sub.group(item, out.Index(i), "")
		name := fmt.Sprintf("%s[%d]", path, i)
		for _, f := range sub.faults {
			f.Key = join(name, f.Key)
			d.faults = append(d.faults, f)
		}
		for key, at := range sub.set {
			d.set[join(name, key)] = at
		}
	}
	v.Set(out)
}

// field sets one leaf. null keeps the default, unless the tag says otherwise.
func (d *decoder) field(n *node, v reflect.Value, path string, f reflect.StructField) {
	if n.kind == nullKind {
		if f.Tag.Get("null") == "zero" {
			v.SetZero()
		}
		return
	}
	if err := read(n, v); err != nil {
		d.fault(n.at, path, "%s", err)
		return
	}
	if err := check(v, f.Tag); err != nil {
		d.fault(n.at, path, "%s", err)
	}
}

// read converts a node to the type of v.
func read(n *node, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Slice:
		return readList(n, v)
	case reflect.Array:
		if n.kind != listKind || len(n.list) != v.Len() {
			return fmt.Errorf("must be a list of %s", typeName(v.Type()))
		}
		return readItems(n.list, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return read(n, v.Elem())
	case reflect.Interface: // a key without effect may hold anything
		v.Set(reflect.ValueOf(n))
		return nil
	}
	if n.kind != scalarKind {
		return fmt.Errorf("is %s, must be %s", n.kind, article(typeName(v.Type())))
	}
	return readScalar(n.text, v)
}

// readList accepts a list, or a single value for a list of one.
func readList(n *node, v reflect.Value) error {
	items := n.list
	if n.kind == scalarKind {
		items = []*node{n}
	} else if n.kind != listKind {
		return fmt.Errorf("is %s, must be %s", n.kind, article(typeName(v.Type())))
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	return readItems(items, v)
}

func readItems(items []*node, v reflect.Value) error {
	for i, item := range items {
		if item.kind == nullKind {
			return fmt.Errorf("item %d is empty", i+1)
		}
		if err := read(item, v.Index(i)); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

func readScalar(text string, v reflect.Value) error {
	switch v.Type() {
	case sizeType:
		n, err := ParseSize(text)
		v.SetInt(int64(n))
		return err
	case durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 5m", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		return readBool(text, v)
	case reflect.Int, reflect.Int64:
		n, err := parseWhole(text)
		v.SetInt(n)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	}
	return nil
}

// readBool takes the words of YAML 1.2.
func readBool(text string, v reflect.Value) error {
	switch text {
	case "true", "True", "TRUE":
		v.SetBool(true)
	case "false", "False", "FALSE":
		v.SetBool(false)
	default:
		return fmt.Errorf("%q is not true or false", text)
	}
	return nil
}

// parseWhole reads a whole number, with underscores or an exponent if wanted.
func parseWhole(text string) (int64, error) {
	digits := strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	// Beyond 2^53 a float64 no longer holds every whole number.
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return int64(f), nil
}

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes with an optional unit, such as 4GiB.
func ParseSize(text string) (Size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(digits), "_", ""), 64)
		if n := f * u.bytes; err == nil && n == math.Trunc(n) && math.Abs(n) <= 1<<53 {
			return Size(n), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a size such as 512MiB, 4GiB or 100GB", text)
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := Size(sizeUnits[i].bytes); s != 0 && s%u == 0 {
			return strconv.FormatInt(int64(s/u), 10) + sizeUnits[i].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// check applies the tags oneof and range; a list or array is checked item by item.
func check(v reflect.Value, tag reflect.StructTag) error {
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := check(v.Index(i), tag); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return nil
	case reflect.Pointer:
		return check(v.Elem(), tag)
	}
	if words := tag.Get("oneof"); words != "" {
		if v.String() == "" && tag.Get("empty") == "ok" {
			return nil
		}
		return checkWord(v.String(), strings.Fields(words))
	}
	if r := tag.Get("range"); r != "" && !inRange(r, number(v)) {
		return fmt.Errorf("%s is not in %s", format(v), prettyRange(r))
	}
	return nil
}

func checkWord(got string, allowed []string) error {
	for _, w := range allowed {
		if got == w {
			return nil
		}
	}
	return fmt.Errorf("%q is not one of %s%s", got, strings.Join(allowed, ", "), didYouMean(got, allowed))
}

func number(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	return v.Float()
}

// inRange tests f against an interval such as (0,inf) or [0,1).
func inRange(r string, f float64) bool {
	low, high, _ := strings.Cut(r[1:len(r)-1], ",")
	lo, _ := strconv.ParseFloat(low, 64)
	hi, _ := strconv.ParseFloat(high, 64)
	aboveLow := f > lo || r[0] == '[' && f == lo
	belowHigh := f < hi || r[len(r)-1] == ']' && f == hi
	return aboveLow && belowHigh
}

func prettyRange(r string) string { return strings.Replace(r, ",", ", ", 1) }

// article puts "a" before a type's name where English wants it.
func article(name string) string {
	if name == "text" || name == "true or false" || name[0] >= '0' && name[0] <= '9' {
		return name
	}
	return "a " + name
}
