package nvml_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kvbench/internal/cudadrv/testdouble"
	"kvbench/internal/nvml"
)

// askVar has a process that a test started print what joins the devices it names:
// the library is opened once a process.
const askVar = "NVML_TEST_ASK"

func TestMain(m *testing.M) {
	if pair := os.Getenv(askVar); pair != "" {
		if err := ask(pair); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testdouble.Main(m))
}

// uuid is that of the double's device N: "kvbench double", a zero, and the number.
func uuid(device int) string {
	return fmt.Sprintf("GPU-6b766265-6e63-6820-646f-75626c6500%02x", device)
}

// ask prints the link between two devices.
func ask(pair string) error {
	var own, peer int
	if _, err := fmt.Sscanf(pair, "%d-%d", &own, &peer); err != nil {
		return err
	}
	library, err := nvml.Open()
	if err != nil {
		return err
	}
	link, err := library.Link(uuid(own), uuid(peer))
	if err != nil {
		return err
	}
	fmt.Println(link)
	return nil
}

// answer is what a process with further variables says of a pair of devices, and
// whether that is a link.
func answer(t *testing.T, pair string, env ...string) (text string, ok bool) {
	t.Helper()
	testdouble.Only(t)
	env = append(env, askVar+"="+pair)
	out, err := testdouble.Command(env...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), err == nil
}
