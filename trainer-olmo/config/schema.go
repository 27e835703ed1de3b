package config

import (
	"reflect"
	"strconv"
	"strings"
)

// Key describes one key of the configuration.
type Key struct {
	Path    string // dotted, such as optimizer.lr
	Type    string // as told to the user: whole number, number, text, yes/no, …
	Default string // as it would be written in YAML
	Allowed string // words or interval, empty when anything of the type goes
	Doc     string
}

// Keys lists every key in the order of the resolved file, groups left out.
func Keys() []Key {
	c := Default()
	return keysOf(reflect.ValueOf(c), "")
}

func keysOf(v reflect.Value, prefix string) []Key {
	var keys []Key
	for i := range v.NumField() {
		f, fv := v.Type().Field(i), v.Field(i)
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		path := join(prefix, name)
		if f.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(fv, path)...)
			continue
		}
		allowed := strings.ReplaceAll(f.Tag.Get("oneof"), " ", ", ")
		if r := f.Tag.Get("range"); r != "" {
			allowed = prettyRange(r)
		}
		keys = append(keys, Key{path, typeName(f.Type), format(fv), allowed, f.Tag.Get("doc")})
	}
	return keys
}

// typeName words a field's type for an error or the reference.
func typeName(t reflect.Type) string {
	switch t {
	case sizeType:
		return "size"
	case durationType:
		return "duration"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list of " + typeName(t.Elem()) + "s"
	case reflect.Array:
		return strconv.Itoa(t.Len()) + " " + typeName(t.Elem()) + "s"
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return "text"
}

// schema is the set of keys of one struct type, for look-up and suggestions.
type schema struct {
	keys   []Key
	fields map[string]reflect.StructField // by path, groups included
	group  map[string][]string            // names in a group
}

// schemaOf reads the tags of t.
func schemaOf(t reflect.Type) schema {
	s := schema{fields: map[string]reflect.StructField{}, group: map[string][]string{}}
	s.add(t, "")
	return s
}

func (s *schema) add(t reflect.Type, prefix string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		path := join(prefix, name)
		s.fields[path] = f
		s.group[prefix] = append(s.group[prefix], name)
		if f.Type.Kind() == reflect.Struct {
			s.add(f.Type, path)
			continue
		}
		s.keys = append(s.keys, Key{Path: path, Type: typeName(f.Type)})
	}
}

func (s schema) has(path string) bool { _, ok := s.fields[path]; return ok }

func (s schema) names(group string) []string { return s.group[group] }

func (s schema) paths() []string {
	paths := make([]string, len(s.keys))
	for i, k := range s.keys {
		paths[i] = k.Path
	}
	return paths
}

// join appends a name to a dotted path.
func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// IsKey reports whether path is a key or a group here or in the legacy trainer.
func IsKey(path string) bool {
	return schemaOf(reflect.TypeFor[Config]()).has(path) || schemaOf(reflect.TypeFor[legacyConfig]()).has(path)
}
