package payload

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"kvbench/internal/spelling"
)

// presetFile maps a name to the fields of the model's public config.json that determine its
// KV geometry and its parameters.
//
//go:embed presets.json
var presetFile []byte

// presets splits the file into names and undecoded configs, once, on first use.
var presets = sync.OnceValues(func() (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(presetFile, &m)
	return m, err
})

// Presets returns the names of the embedded models, sorted.
func Presets() []string {
	m, _ := presets() // a test parses the embedded file, so this cannot fail
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// UnknownModelError is returned for a model that is neither a preset nor a path.
type UnknownModelError struct {
	Name    string
	Nearest []string // presets with a similar name, nearest first; may be empty
}

func (e *UnknownModelError) Error() string {
	hint := "name a preset (kvbench shape --list)"
	if len(e.Nearest) > 0 {
		hint = "did you mean " + strings.Join(e.Nearest, ", ") + "? Name a preset"
	}
	return fmt.Sprintf("load model %.80q: there is no preset and no file of that name; %s, a config.json or a directory that holds one", e.Name, hint)
}

// Load returns the geometry of a preset by its name in any case, or of a config.json by its
// path or its directory. A preset takes precedence over a file of the same name. For any
// other name it returns an *UnknownModelError.
func Load(nameOrPath string) (Geometry, error) {
	m, err := presets()
	if err != nil {
		return Geometry{}, fmt.Errorf("load presets: %w", err)
	}
	name := strings.ToLower(nameOrPath)
	if raw, ok := m[name]; ok {
		g, err := ReadConfig(bytes.NewReader(raw))
		if err != nil {
			return Geometry{}, fmt.Errorf("load preset %s: %w", name, err)
		}
		g.Model = name
		return g, nil
	}
	path := nameOrPath
	info, err := os.Stat(path)
	if err != nil {
		if strings.ContainsAny(nameOrPath, `/\`) || strings.HasSuffix(nameOrPath, ".json") {
			return Geometry{}, fmt.Errorf("load model: %w; give a preset's name, a config.json or its directory", err)
		}
		return Geometry{}, &UnknownModelError{nameOrPath, nearest(name, Presets())}
	}
	if info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	return loadFile(path)
}

func loadFile(path string) (Geometry, error) {
	f, err := os.Open(path)
	if err != nil {
		return Geometry{}, fmt.Errorf("load model: %w; give a preset's name, a config.json or its directory", err)
	}
	defer f.Close()
	g, err := ReadConfig(f)
	if err != nil {
		return Geometry{}, fmt.Errorf("load model %s: %w", path, err)
	}
	g.Model = strings.TrimSuffix(filepath.Base(path), ".json")
	if g.Model == "config" {
		if abs, err := filepath.Abs(path); err == nil {
			g.Model = filepath.Base(filepath.Dir(abs))
		}
	}
	return g, nil
}

// nearest returns up to three names: those within a third of the name's length in
// edits, then those that contain it.
func nearest(name string, names []string) []string {
	const shown, longest = 3, 64
	if len(name) > longest || len(name) < 2 {
		return nil
	}
	limit := max(2, len(name)/3)
	distance := make(map[string]int, len(names))
	var near []string
	for _, n := range names {
		d := spelling.Distance(name, n)
		if d > limit && !strings.Contains(n, name) {
			continue
		}
		distance[n] = min(d, limit+1)
		near = append(near, n)
	}
	slices.SortStableFunc(near, func(a, b string) int { return distance[a] - distance[b] })
	return near[:min(len(near), shown)]
}
