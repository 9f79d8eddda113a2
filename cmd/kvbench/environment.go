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

// variable returns the environment variable of a flag.
func variable(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets flags from the environment, unless the command line has set them,
// and returns their names.
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

// fromVariable reports whether a flag's value is the one in the environment, which may be
// meant for other commands.
func fromVariable(flag, value string) bool {
	v, ok := os.LookupEnv(variable(flag))
	return ok && v == value
}

// refuseUnknownVariables returns a usage error for KVBENCH_ variables that belong to no
// flag of any command: most likely misspelt flags. Variables for other commands are
// allowed.
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

// othersVariable reports whether a variable is not meant for a command: it belongs to the
// tests and scripts of this project, or Kubernetes sets it for services called kvbench,
// kvbench-consumer and the like.
func othersVariable(name string) bool {
	name = strings.TrimPrefix(name, environmentPrefix)
	if name == "REQUIRE" || name == "CACHE" {
		return true
	}
	name = "_" + name + "_"
	return strings.Contains(name, "_PORT_") || strings.Contains(name, "_SERVICE_HOST_")
}

// blameEnvironment adds to a usage error the variables that may have caused it, because
// users do not look for flags in the environment. set lists the flags that came from
// there. If the message names no flag, each of them is a candidate.
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

// mentions reports whether text contains a flag, and not only as the beginning of a
// longer one.
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
