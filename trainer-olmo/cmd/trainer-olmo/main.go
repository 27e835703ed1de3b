// Command trainer-olmo trains OLMo models on CPUs, with AdamW or with the
// second-order methods of Asteria. See `trainer-olmo help`.
//
// Exit status: 0 success, 1 the work failed, 2 the command line or a
// configuration is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK    = 0
	exitRun   = 1
	exitUsage = 2
)

// env is what a command works with.
type env struct {
	out, err io.Writer
	flags    *pflag.FlagSet
	args     []string // positional
	set      []string // key.path=value
}

// command is one word of the command line.
type command struct {
	name     string
	summary  string
	usage    string   // what follows the name
	help     string   // paragraphs
	examples []string // command lines without the program's name
	min, max int      // positional arguments, max < 0 = any number
	config   bool     // takes key.path=value
	flags    func(*pflag.FlagSet)
	run      func(context.Context, *env) error
}

// commands in the order of the help.
func commands() []command {
	return []command{
		trainCommand(), compareCommand(), planCommand(), tokenizeCommand(), inspectCommand(), evalCommand(), generateCommand(),
		exportCommand(), importCommand(), reportCommand(), digestCommand(), doctorCommand(), versionCommand(),
	}
}

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	err := dispatch(ctx, args, out, errOut)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return exitOK
	case isUsage(err):
		fmt.Fprintf(errOut, "trainer-olmo: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(errOut, "trainer-olmo: %v\n", err)
	return exitRun
}

// isUsage tells a mistake of the user from a failure of the work.
func isUsage(err error) bool {
	var faults config.Errors
	var usage usageError
	return errors.As(err, &faults) || errors.As(err, &usage)
}

func dispatch(ctx context.Context, args []string, out, errOut io.Writer) error {
	if len(args) == 0 {
		return usagef("no command; one of %s (try trainer-olmo help)", strings.Join(commandNames(), ", "))
	}
	name := args[0]
	switch name {
	case "help", "--help", "-h":
		return help(args[1:], out)
	case "--version":
		name = "version"
	}
	c, err := lookup(name)
	if err != nil {
		return err
	}
	e, err := c.parse(args[1:], out)
	if err != nil {
		return err
	}
	e.out, e.err = out, errOut
	return c.run(ctx, e)
}

func commandNames() []string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

func lookup(name string) (*command, error) {
	for _, c := range commands() {
		if c.name == name {
			return &c, nil
		}
	}
	hint := ""
	if near := config.Nearest(name, commandNames()); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return nil, usagef("unknown command %q%s (try trainer-olmo help)", name, hint)
}
