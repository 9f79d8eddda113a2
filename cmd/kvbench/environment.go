package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const environmentPrefix = "KVBENCH_"

// variable is the environment's name for a flag.
func variable(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets every flag that the command line left out and the environment
// gives, and returns their names.
func fromEnvironment(flags *pflag.FlagSet) (set []string, err error) {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		v, ok := os.LookupEnv(variable(f.Name))
		if !ok || f.Changed {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			errs = append(errs, usagef("%s in the environment: %w", variable(f.Name), inPlainWords(err)))
			return
		}
		set = append(set, f.Name)
	})
	return set, errors.Join(errs...)
}

// fromVariable reports whether a flag's value stands in the environment, where it may be
// meant for other commands.
func fromVariable(flag, value string) bool {
	v, ok := os.LookupEnv(variable(flag))
	return ok && v == value
}

// refuseUnknownVariables finds what is set for kvbench and is no flag of any command:
// most likely a flag that was misspelt. Flags of other commands are set for those.
func refuseUnknownVariables(root *cobra.Command) error {
	known := make(map[string]bool)
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[variable(f.Name)] = true })
	}
	var found []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, environmentPrefix) && !known[name] && !othersVariable(name) {
			found = append(found, fmt.Sprintf("%s in the environment is no flag of any command: unset it, or correct its name", name))
		}
	}
	slices.Sort(found)
	return usageOf(found)
}

// othersVariable reports whether a variable is set for somebody else: for the tests
// and scripts of this project, or by Kubernetes for services called kvbench, kvbench-consumer and the like.
func othersVariable(name string) bool {
	name = strings.TrimPrefix(name, environmentPrefix)
	if name == "REQUIRE" || name == "CACHE" {
		return true
	}
	name = "_" + name + "_"
	return strings.Contains(name, "_PORT_") || strings.Contains(name, "_SERVICE_HOST_")
}

// blameEnvironment adds to a wrong usage which of the flags that it is about came from
// the environment, where nobody looks for them: set lists those that did. Of a
// message that names no flag at all it can be any of them.
func blameEnvironment(err error, set []string) error {
	text := err.Error()
	var blamed []string
	for _, flag := range set {
		if mentions(text, "--"+flag) || !strings.Contains(text, "--") && !strings.Contains(text, environmentPrefix) {
			blamed = append(blamed, variable(flag))
		}
	}
	if len(blamed) == 0 {
		return err
	}
	return fmt.Errorf("%w (from the environment: %s)", err, strings.Join(blamed, ", "))
}

// mentions reports whether a flag stands in text, and not only as the beginning of
// another.
func mentions(text, flag string) bool {
	for {
		_, rest, found := strings.Cut(text, flag)
		if !found {
			return false
		}
		if rest == "" || rest[0] != '-' && (rest[0] < 'a' || rest[0] > 'z') {
			return true
		}
		text = rest
	}
}
