package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// parse sorts arguments into flags, overrides and positional ones.
func (c *command) parse(args []string, out io.Writer) (*env, error) {
	fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.Usage = func() { c.writeHelp(out, fs) }
	if c.flags != nil {
		c.flags(fs)
	}
	e := &env{flags: fs}
	var rest []string
	for i, arg := range args {
		if arg == "--" {
			rest = append(rest, args[i:]...)
			break
		}
		if c.config && isOverride(arg, fs) {
			e.set = append(e.set, arg)
			continue
		}
		rest = append(rest, arg)
	}
	if err := fs.Parse(rest); err != nil {
		return nil, c.flagError(err, fs)
	}
	e.args = fs.Args()
	return e, c.checkArgs(e)
}

// isOverride accepts key.path=value, and --key.path=value as the legacy trainer
// has it, for what is a key and not a flag.
func isOverride(arg string, fs *pflag.FlagSet) bool {
	name, _, ok := strings.Cut(arg, "=")
	if !ok {
		return false
	}
	if !strings.HasPrefix(name, "-") {
		return true
	}
	name, dashes := strings.CutPrefix(name, "--")
	return dashes && fs.Lookup(name) == nil && (strings.Contains(name, ".") || config.IsKey(name))
}

// flagError words what pflag found in one line, with the nearest flag.
func (c *command) flagError(err error, fs *pflag.FlagSet) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		hint := ""
		if near := config.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			hint = fmt.Sprintf("; did you mean --%s?", near)
		}
		dashes := "--"
		if len(unknown.GetSpecifiedName()) == 1 {
			dashes = "-"
		}
		return usagef("%s: unknown flag %s%s%s (try trainer-olmo %s --help)", c.name, dashes, unknown.GetSpecifiedName(), hint, c.name)
	}
	return usagef("%s: %v", c.name, err)
}

// checkArgs counts positional arguments.
func (c *command) checkArgs(e *env) error {
	n := len(e.args)
	switch {
	case n < c.min && c.usage == "":
		return usagef("%s: takes no arguments", c.name)
	case n < c.min:
		return usagef("%s: too few arguments; usage: trainer-olmo %s %s", c.name, c.name, c.usage)
	case c.max >= 0 && n > c.max:
		return usagef("%s: unexpected argument %q; usage: trainer-olmo %s", c.name, e.args[c.max], strings.TrimSpace(c.name+" "+c.usage))
	}
	return nil
}

// help writes the help of one command or of all.
func help(args []string, out io.Writer) error {
	if len(args) > 0 {
		c, err := lookup(args[0])
		if err != nil {
			return err
		}
		_, err = c.parse([]string{"--help"}, out)
		return err
	}
	var b strings.Builder
	b.WriteString("trainer-olmo trains OLMo models with AdamW or second-order optimizers.\n\nusage: trainer-olmo COMMAND [ARGUMENT…] [--FLAG…] [key.path=value…]\n\ncommands\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-9s %s\n", c.name, c.summary)
	}
	b.WriteString("\ntrainer-olmo COMMAND --help tells more. Exit status: 0 success, 1 the work failed, 2 usage or configuration.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// writeHelp writes what --help shows.
func (c *command) writeHelp(out io.Writer, fs *pflag.FlagSet) {
	var b strings.Builder
	overrides := ""
	if c.config {
		overrides = " [key.path=value…]"
	}
	fmt.Fprintf(&b, "%s\n\nusage: trainer-olmo %s%s\n", c.summary, strings.TrimSpace(c.name+" "+c.usage), overrides)
	if c.help != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(c.help))
	}
	if fs.HasFlags() {
		fmt.Fprintf(&b, "\nflags\n%s", fs.FlagUsages())
	}
	b.WriteString("\nexamples\n")
	for _, ex := range c.examples {
		fmt.Fprintf(&b, "  trainer-olmo %s\n", ex)
	}
	io.WriteString(out, b.String())
}
