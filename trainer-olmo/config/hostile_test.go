package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// bomb has n levels of ten aliases each: 10^n values from n lines.
func bomb(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < n; i++ {
		ref := fmt.Sprintf("*a%d", i-1)
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.Repeat(ref+", ", 9)+ref)
	}
	return b.String()
}

func TestHostileTextsAreRefusedQuickly(t *testing.T) {
	for name, text := range map[string]string{
		"alias bomb":              bomb(12),
		"reference bomb":          "max_duration: ${a}\nprecision: fp32\nfsdp: ${b}${b}${b}${b}\na: ${b}${b}${b}\nb: " + strings.Repeat("x", 60000) + "\n",
		"circle of references":    "max_duration: ${precision}\nprecision: ${max_duration}\n",
		"an alias inside itself":  "a: &a [*a]\n",
		"deep flow lists":         strings.Repeat("[", 1<<18),
		"deep flow groups":        strings.Repeat("{a: ", 1<<16),
		"deep compact lists":      strings.Repeat("- ", 1<<17) + "x",
		"deep explicit keys":      strings.Repeat("? ", 1<<17) + "x",
		"deep indented groups":    indented(1000),
		"many anchors on a line":  strings.Repeat("&a ", 1<<16) + "x",
		"many documents":          strings.Repeat("---\na: 1\n", 1000),
		"binary":                  "\x00\x01\xff\xfe",
		"a long line of brackets": strings.Repeat("[]", 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("f.yaml", []byte(text), nil)
			if err == nil {
				t.Error("accepted")
			}
			if s := err.Error(); len(s) > 2000 {
				t.Errorf("the error has %d bytes: %.200s…", len(s), s)
			}
			// A generous bound: the point is seconds against hours.
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func indented(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// FuzzParse holds two promises on any text: no panic, and whatever is accepted
// reads back from its own resolved text.
func FuzzParse(f *testing.F) {
	f.Add([]byte(base), "optimizer.lr=1e-2")
	f.Add([]byte(bomb(3)), "a=*a0")
	f.Add([]byte("model: &m {preset: olmo2_14M}\ntrain: *m\n"), "=")
	f.Add([]byte("max_duration: ${path.choose:${oc.env:X,y},/z}\nprecision: amp_bf16\n"), "--a.b=[c, {d: e}]")
	f.Add([]byte("a: |\n  b\n? c\n: d\n"), "x=!!y z")
	f.Fuzz(func(t *testing.T, text []byte, override string) {
		c, err := Parse("f.yaml", text, []string{override})
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without a text")
			}
			return
		}
		back, err := Parse("f.yaml", c.YAML(), nil)
		if err != nil {
			t.Fatalf("the resolved text is refused: %v\n%s", err, c.YAML())
		}
		if string(back.YAML()) != string(c.YAML()) {
			t.Errorf("the resolved text does not read back as itself:\n%s\n%s", c.YAML(), back.YAML())
		}
	})
}
