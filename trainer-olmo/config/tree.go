package config

import (
	"errors"
	"fmt"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits on a YAML text. OLMo's longest official file is below 1 MB and nests
// five deep; the rest is head-room against hostile input.
const (
	maxFileBytes = 8 << 20
	maxDepth     = 64
	maxNodes     = 1 << 20 // after aliases are expanded
)

type kind uint8

const (
	nullKind kind = iota
	scalarKind
	listKind
	mapKind
)

// String names the kind in an error text.
func (k kind) String() string {
	return [...]string{"nothing", "a value", "a list", "a group of keys"}[k]
}

// node is one value of a YAML text, untyped: the field that takes it decides
// how its text is read. Nodes are shared by aliases and never changed.
type node struct {
	kind    kind
	text    string
	quoted  bool
	list    []*node
	entries []entry
	at      string // where it stands: "file:line", or the override
	size    int    // nodes below and including this one, aliases expanded
}

// empty reports whether n is null, the empty text or an empty list.
func (n *node) empty() bool {
	return n.kind == nullKind || n.kind == scalarKind && n.text == "" || n.kind == listKind && len(n.list) == 0
}

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    string
	value *node
}

// child is the value of a key, nil when absent.
func (n *node) child(key string) *node {
	if n == nil {
		return nil
	}
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// at follows a dotted path from n, nil when it leads nowhere.
func (n *node) path(path string) *node {
	for key := range strings.SplitSeq(path, ".") {
		n = n.child(key)
	}
	return n
}

// parse reads one YAML document. name is the prefix of positions; with byLine
// the line number is added to it. An empty text gives an empty mapping.
func parse(name string, text []byte, byLine bool) (n *node, err error) {
	p := &treeParser{name: name, byLine: byLine, anchors: map[string]*node{}}
	defer func() {
		// The YAML library has panicked on malformed input before; a text
		// that it cannot digest is a syntax error of that text.
		if r := recover(); r != nil {
			n, err = nil, Errors{{At: name, Msg: "not readable as YAML"}}
		}
	}()
	if len(text) > maxFileBytes {
		return nil, p.fail(nil, "%d bytes are more than the %d allowed", len(text), maxFileBytes)
	}
	tokens := lexer.Tokenize(string(text))
	if err := p.checkDepth(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, p.syntax(err)
	}
	return p.document(file)
}

// treeParser turns the library's syntax tree into nodes.
type treeParser struct {
	name    string
	byLine  bool
	anchors map[string]*node
	depth   int
}

func (p *treeParser) at(t *token.Token) string {
	if !p.byLine || t == nil || t.Position == nil {
		return p.name
	}
	return fmt.Sprintf("%s:%d", p.name, t.Position.Line)
}

func (p *treeParser) fail(t *token.Token, format string, args ...any) error {
	return Errors{{At: p.at(t), Msg: fmt.Sprintf(format, args...)}}
}

// checkDepth bounds nesting before the recursive parser sees the text: a flow
// bracket or a compact "- - -" costs one byte a level.
func (p *treeParser) checkDepth(tokens token.Tokens) error {
	flow, line, compact := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, compact = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			compact++
		}
		if max(flow, compact) > maxDepth || t.Position.Column > maxDepth*64 && t.Position.IndentNum > maxDepth*16 {
			return p.fail(t, "nested more than %d deep", maxDepth)
		}
	}
	return nil
}

// syntax gives a parse error of the library its place, on one line.
func (p *treeParser) syntax(err error) error {
	var located yaml.Error
	if !errors.As(err, &located) {
		return p.fail(nil, "%s", firstLine(err.Error()))
	}
	return p.fail(located.GetToken(), "YAML: %s", firstLine(located.GetMessage()))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func (p *treeParser) document(file *ast.File) (*node, error) {
	empty := &node{kind: mapKind, at: p.name, size: 1}
	var root *node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			return nil, p.fail(doc.Body.GetToken(), "a second YAML document; one is allowed")
		}
		n, err := p.node(doc.Body)
		if err != nil {
			return nil, err
		}
		root = n
	}
	if root == nil || root.kind == nullKind {
		return empty, nil
	}
	return root, nil
}

// node converts one value. Every return path sets size, so that aliases cannot
// multiply beyond maxNodes.
func (p *treeParser) node(a ast.Node) (*node, error) {
	if p.depth++; p.depth > 4*maxDepth {
		return nil, p.fail(a.GetToken(), "nested more than %d deep", 4*maxDepth)
	}
	defer func() { p.depth-- }()
	switch a := a.(type) {
	case nil:
		return &node{at: p.name, size: 1}, nil
	case *ast.MappingNode:
		return p.mapping(a.GetToken(), a.Values)
	case *ast.MappingValueNode:
		return p.mapping(a.GetToken(), []*ast.MappingValueNode{a})
	case *ast.SequenceNode:
		return p.sequence(a)
	case *ast.AnchorNode:
		n, err := p.node(a.Value)
		if err == nil {
			p.anchors[a.Name.String()] = n
		}
		return n, err
	case *ast.AliasNode:
		n := p.anchors[a.Value.String()]
		if n == nil {
			return nil, p.fail(a.GetToken(), "alias *%s has no anchor", a.Value.String())
		}
		return n, nil
	case *ast.TagNode:
		return nil, p.fail(a.GetToken(), "tag %s: tags are not allowed", a.Start.Value)
	case *ast.CommentGroupNode:
		return &node{at: p.name, size: 1}, nil
	}
	return p.scalar(a)
}

func (p *treeParser) scalar(a ast.Node) (*node, error) {
	n := &node{kind: scalarKind, at: p.at(a.GetToken()), size: 1}
	switch a := a.(type) {
	case *ast.NullNode:
		n.kind = nullKind
	case *ast.StringNode:
		n.text = a.Value
		n.quoted = a.Token.Type == token.SingleQuoteType || a.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		n.text, n.quoted = a.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		n.text = a.GetToken().Value
	default:
		return nil, p.fail(a.GetToken(), "a %s is not allowed here", strings.ToLower(a.Type().String()))
	}
	return n, nil
}

func (p *treeParser) sequence(a *ast.SequenceNode) (*node, error) {
	n := &node{kind: listKind, at: p.at(a.GetToken()), size: 1}
	for _, v := range a.Values {
		item, err := p.node(v)
		if err != nil {
			return nil, err
		}
		if n.size += item.size; n.size > maxNodes {
			return nil, p.fail(a.GetToken(), "more than %d values after aliases are expanded", maxNodes)
		}
		n.list = append(n.list, item)
	}
	return n, nil
}

func (p *treeParser) mapping(t *token.Token, values []*ast.MappingValueNode) (*node, error) {
	n := &node{kind: mapKind, at: p.at(t), size: 1}
	seen := map[string]string{}
	for _, v := range values {
		key := v.Key.GetToken()
		if v.Key.IsMergeKey() {
			return nil, p.fail(key, "merge keys (<<) are not allowed")
		}
		value, err := p.node(v.Value)
		if err != nil {
			return nil, err
		}
		if n.size += value.size; n.size > maxNodes {
			return nil, p.fail(key, "more than %d values after aliases are expanded", maxNodes)
		}
		at := p.at(key)
		if first, ok := seen[key.Value]; ok {
			return nil, p.fail(key, "%s: set twice, first at %s", key.Value, first)
		}
		seen[key.Value] = at
		n.entries = append(n.entries, entry{key.Value, at, value})
	}
	return n, nil
}

// with returns n with the value at path replaced; groups on the way are made as
// needed, and a group given for a group is merged into it. n is not changed.
func (n *node) with(path []string, value *node) *node {
	if len(path) == 0 {
		if n == nil || n.kind != mapKind || value.kind != mapKind {
			return value
		}
		for _, e := range value.entries {
			n = n.with([]string{e.key}, e.value)
		}
		return n
	}
	out := &node{kind: mapKind, at: value.at, size: 1}
	if n != nil && n.kind == mapKind {
		out.at, out.entries = n.at, append([]entry(nil), n.entries...)
	}
	for i, e := range out.entries {
		if e.key == path[0] {
			out.entries[i] = entry{e.key, value.at, e.value.with(path[1:], value)}
			return out
		}
	}
	var none *node
	out.entries = append(out.entries, entry{path[0], value.at, none.with(path[1:], value)})
	return out
}
