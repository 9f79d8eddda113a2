package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// takes accepts exactly the named arguments, such as RUN.json. Its error names the
// missing or superfluous ones.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case len(given) < len(names):
			return usagef("%s needs %s, such as: %s", cmd.CommandPath(), strings.Join(names[len(given):], " and "), example(cmd))
		case len(given) > len(names) && len(names) == 0:
			return usagef("%s takes flags alone, and %q is none; such as: %s", cmd.CommandPath(), given[0], example(cmd))
		case len(given) > len(names):
			return usagef("%s takes %s alone, and %q is too much; such as: %s", cmd.CommandPath(), strings.Join(names, " and "), given[len(names)], example(cmd))
		}
		return nil
	}
}

// example returns a valid command line: the first in the command's help.
func example(cmd *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if first == "" {
		return cmd.CommandPath()
	}
	return first
}

// adoptCobras makes the commands that cobra adds report wrong usage as the others do.
func adoptCobras(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Run = nil
			c.RunE = helpFor
		case "completion":
			shells := make([]string, 0, 4)
			for _, shell := range c.Commands() {
				shell.Args = takes()
				shells = append(shells, shell.Name())
			}
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(cmd *cobra.Command, given []string) error {
				if len(given) == 0 {
					return cmd.Help()
				}
				return usagef("no completion for %q: choose %s, such as: %s bash", given[0], strings.Join(shells, ", "), cmd.CommandPath())
			}
		}
	}
}

// ofCobra reports whether cobra added a command: help, completion, or the hidden commands
// for shell completion.
func ofCobra(cmd *cobra.Command) bool {
	for cmd.Parent() != nil && cmd.Parent() != cmd.Root() {
		cmd = cmd.Parent()
	}
	return cmd.Name() == "help" || cmd.Name() == "completion" || strings.HasPrefix(cmd.Name(), "__")
}

// helpFor shows the help of the named command.
func helpFor(help *cobra.Command, given []string) error {
	cmd, rest, err := help.Root().Find(given)
	if err != nil || len(rest) > 0 {
		return unknownCommand(help.Root(), strings.Join(given, " "))
	}
	cmd.InitDefaultHelpFlag() // so that the help lists it
	return cmd.Help()
}

// unknownCommand returns a usage error that suggests similar names.
func unknownCommand(root *cobra.Command, name string) error {
	suggestion := ""
	if s := root.SuggestionsFor(name); len(s) > 0 {
		suggestion = fmt.Sprintf("; did you mean %s?", strings.Join(s, " or "))
	}
	return usagef("unknown command %q%s", name, suggestion)
}
