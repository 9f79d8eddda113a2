package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// takes refuses arguments other than those that are named, such as RUN.json, and says
// which is missing or too many.
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

// example is a command line that would do: the first that the help shows.
func example(cmd *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if first == "" {
		return cmd.CommandPath()
	}
	return first
}

// adoptCobras makes the commands that cobra adds tell of wrong usage as the others do.
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

// ofCobra reports whether a command is one that cobra adds: help, completion, or what
// the shell's completion calls.
func ofCobra(cmd *cobra.Command) bool {
	for cmd.Parent() != nil && cmd.Parent() != cmd.Root() {
		cmd = cmd.Parent()
	}
	return cmd.Name() == "help" || cmd.Name() == "completion" || strings.HasPrefix(cmd.Name(), "__")
}

// helpFor shows the help of the command that is named.
func helpFor(help *cobra.Command, given []string) error {
	cmd, rest, err := help.Root().Find(given)
	if err != nil || len(rest) > 0 {
		return unknownCommand(help.Root(), strings.Join(given, " "))
	}
	cmd.InitDefaultHelpFlag() // so that it is shown
	return cmd.Help()
}

// unknownCommand says that there is none of a name, and which may be meant.
func unknownCommand(root *cobra.Command, name string) error {
	suggestion := ""
	if s := root.SuggestionsFor(name); len(s) > 0 {
		suggestion = fmt.Sprintf("; did you mean %s?", strings.Join(s, " or "))
	}
	return usagef("unknown command %q%s", name, suggestion)
}
