package trainerolmo_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// Markers around the reference in README.md.
const (
	begin = "<!-- keys: written by ASTERIA_REWRITE=1 go test . -->\n"
	end   = "<!-- end of keys -->\n"
)

// reference is the table of all keys as the README has it.
func reference() string {
	var b strings.Builder
	group := ""
	for _, k := range config.Keys() {
		name := "(top level)"
		if at := strings.IndexByte(k.Path, '.'); at >= 0 {
			name = k.Path[:at]
		}
		if name != group {
			group = name
			fmt.Fprintf(&b, "\n#### %s\n\n| key | default | allowed | meaning |\n|---|---|---|---|\n", name)
		}
		allowed := k.Allowed
		if allowed == "" {
			allowed = k.Type
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", k.Path, k.Default, escape(allowed), escape(k.Doc))
	}
	return b.String() + "\n"
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func TestTheReadmesReferenceIsThatOfTheStructs(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	keys, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("README.md lacks the markers of the reference")
	}
	if keys == reference() {
		return
	}
	if os.Getenv("ASTERIA_REWRITE") == "" {
		t.Fatal("the reference in README.md is not that of config.Config; ASTERIA_REWRITE=1 go test . writes it")
	}
	if err := os.WriteFile("README.md", []byte(before+begin+reference()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
