package config

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// show writes a tree in one line: {key: value, …}, [item, …], text, ~.
func show(n *node) string {
	switch n.kind {
	case nullKind:
		return "~"
	case listKind:
		var items []string
		for _, i := range n.list {
			items = append(items, show(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case mapKind:
		var items []string
		for _, e := range n.entries {
			items = append(items, e.key+": "+show(e.value))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return fmt.Sprintf("%q", n.text)
}

func TestYAMLIsReadAsATreeOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "{}",
		"# only a comment\n":                   "{}",
		"---\na: 1\n":                          `{a: "1"}`,
		"a: 1 # why\nb: two words\n":           `{a: "1", b: "two words"}`,
		"a:\n  b:\n    - 1\n    - [x, {y: z}]": `{a: {b: ["1", ["x", {y: "z"}]]}}`,
		"a: null\nb: ~\nc:\n":                  "{a: ~, b: ~, c: ~}",
		"a: 'it''s'\nb: \"t\\tb\"\n":           `{a: "it's", b: "t\tb"}`,
		"a: |\n  one\n  two\n":                 `{a: "one\ntwo\n"}`,
		"a: >\n  one\n  two\n":                 `{a: "one two\n"}`,
		"a: &x [1, 2]\nb: *x\n":                `{a: ["1", "2"], b: ["1", "2"]}`,
		"a: 1e5\nb: 0x10\nc: 739_328\nd: .5":   `{a: "1e5", b: "0x10", c: "739_328", d: ".5"}`,
		"a: true\nb: No\nc: .inf\n":            `{a: "true", b: "No", c: ".inf"}`,
		"{a: {}, b: []}":                       "{a: {}, b: []}",
		"[1, ~, a]":                            `["1", ~, "a"]`,
	} {
		n, err := parse("f", []byte(text), true)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, show(n)); diff != "" {
			t.Errorf("%q: -want +got\n%s", text, diff)
		}
	}
}

func TestEveryNodeKnowsItsLine(t *testing.T) {
	n, err := parse("f", []byte("a:\n  b: 1\n\n  c:\n    - x\n    - y\n"), true)
	if err != nil {
		t.Fatal(err)
	}
	c := n.path("a.c")
	for what, at := range map[string]string{
		"f:2": n.path("a.b").at, "f:4": n.child("a").entries[1].at, "f:5": c.list[0].at, "f:6": c.list[1].at,
	} {
		if at != what {
			t.Errorf("at %s, want %s", at, what)
		}
	}
	if n.path("a.b.c") != nil || n.path("x") != nil || n.path("a.x") != nil {
		t.Error("a path that leads nowhere leads somewhere")
	}
}

func TestSettingAPathLeavesTheOldTreeAlone(t *testing.T) {
	old, err := parse("f", []byte("a: {b: 1, c: 2}\nd: 3\n"), true)
	if err != nil {
		t.Fatal(err)
	}
	before := show(old)
	value := func(s string) *node { v, _ := parse("v", []byte(s), false); return v }
	for _, tc := range []struct{ path, value, want string }{
		{"a.b", "9", `{a: {b: "9", c: "2"}, d: "3"}`},
		{"a.x.y", "9", `{a: {b: "1", c: "2", x: {y: "9"}}, d: "3"}`},
		{"e", "[1]", `{a: {b: "1", c: "2"}, d: "3", e: ["1"]}`},
		{"a", "{c: 5, z: 6}", `{a: {b: "1", c: "5", z: "6"}, d: "3"}`},
		{"a", "7", `{a: "7", d: "3"}`},
		{"d.x", "7", `{a: {b: "1", c: "2"}, d: {x: "7"}}`},
	} {
		got := show(old.with(strings.Split(tc.path, "."), value(tc.value)))
		if got != tc.want {
			t.Errorf("%s = %s: got %s, want %s", tc.path, tc.value, got, tc.want)
		}
	}
	if show(old) != before {
		t.Errorf("the old tree became %s", show(old))
	}
}

// Any text that is written is read back, whatever YAML could take it for.
func TestQuotedTextsReadBack(t *testing.T) {
	const seed = 5
	rnd := rand.New(rand.NewPCG(seed, 0))
	alphabet := []rune("abzAZ019 -_./:#'\"{}[],&*!|>%@`\\\t\n~?=+é世\u0085\u2028\x00\x7f")
	texts := []string{"", " ", "null", "NULL", "yes", "1", "1e5", "0x1", ".5", "-", "- a", "a: b", "a #b", "#a", "~", "true", "!!int 3", "&a", "*a", "@x", "`x", "---", "...", "a\nb", "../x", "/a/b-c_d.e"}
	for range 500 {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteRune(alphabet[rnd.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	for _, s := range texts {
		n, err := parse("f", []byte("a: "+quote(s)+"\n"), true)
		if err != nil || n.child("a").kind != scalarKind || n.child("a").text != s {
			t.Errorf("seed %d: %q is written %s and read %v, %v", seed, s, quote(s), n, err)
		}
	}
}

func TestReferencesAreSplitAtTheirOwnBraces(t *testing.T) {
	for s, want := range map[string]int{"a}": 1, "a:${b}}": 6, "a": -1, "${a}${b}}": 8, "}": 0} {
		if got := closing(s); got != want {
			t.Errorf("closing(%q) = %d, want %d", s, got, want)
		}
	}
	for s, want := range map[string][]string{
		"a": {"a"}, "a,b": {"a", "b"}, "${x:1,2},b": {"${x:1,2}", "b"}, "": {""}, "a,": {"a", ""}, "${a,${b,c}},d": {"${a,${b,c}}", "d"},
	} {
		if diff := cmp.Diff(want, splitArgs(s)); diff != "" {
			t.Errorf("splitArgs(%q): -want +got\n%s", s, diff)
		}
	}
}

func TestRangesAreThoseOfMathematics(t *testing.T) {
	for _, tc := range []struct {
		r    string
		v    float64
		want bool
	}{
		{"[0,1]", 0, true}, {"[0,1]", 1, true}, {"(0,1)", 0, false}, {"(0,1)", 1, false}, {"(0,inf)", 1e300, true},
		{"[-1,1)", -1, true}, {"(-inf,0]", -5, true}, {"(-inf,0]", 1e-300, false}, {"[2,inf)", 1.9, false},
	} {
		if got := inRange(tc.r, tc.v); got != tc.want {
			t.Errorf("%g in %s: %v", tc.v, tc.r, got)
		}
	}
}
