package rdma

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"kvbench/transport"
)

func TestAdvertisement(t *testing.T) {
	good := []advertised{
		{ID: 1, Size: 4096, Address: 0x7f0000000000, Key: []byte{1, 2, 3}},
		{ID: 2},
		{ID: math.MaxUint32, Size: 1, Address: math.MaxUint64 - 1, Key: []byte{0}},
	}
	b, err := json.Marshal(good)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseAdvertisement(b)
	if err != nil || len(got) != len(good) {
		t.Fatalf("parseAdvertisement = %+v, %v", got, err)
	}
	for i := range good {
		if got[i].ID != good[i].ID || got[i].Size != good[i].Size || got[i].Address != good[i].Address || string(got[i].Key) != string(good[i].Key) {
			t.Errorf("region %d is %+v, want %+v", i, got[i], good[i])
		}
	}
}

func TestAdvertisementRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":            ``,
		"no list":          `{"id":1}`,
		"cut off":          `[{"id":1,"size":4`,
		"region 0":         `[{"id":0,"size":4,"address":8,"key":"AQ=="}]`,
		"negative size":    `[{"id":1,"size":-1,"address":8,"key":"AQ=="}]`,
		"no key":           `[{"id":1,"size":4,"address":8}]`,
		"key of nothing":   `[{"id":1,"size":0,"address":8,"key":"AQ=="}]`,
		"address wraps":    `[{"id":1,"size":2,"address":18446744073709551615,"key":"AQ=="}]`,
		"size of 2^63":     `[{"id":1,"size":9223372036854775808,"address":0,"key":"AQ=="}]`,
		"id of 2^32":       `[{"id":4294967296,"size":4,"address":8,"key":"AQ=="}]`,
		"negative address": `[{"id":1,"size":4,"address":-8,"key":"AQ=="}]`,
		"key not base64":   `[{"id":1,"size":4,"address":8,"key":"?"}]`,
		"one twice":        `[{"id":1,"size":0,"address":0},{"id":2,"size":0,"address":0},{"id":1,"size":0,"address":0}]`,
		"second is bad":    `[{"id":1,"size":4,"address":8,"key":"AQ=="},{"id":0}]`,
	} {
		if got, err := parseAdvertisement(transport.Advertisement(text)); !errors.Is(err, transport.ErrProtocol) {
			t.Errorf("%s: %+v, error %v, want ErrProtocol", name, got, err)
		}
	}
}

// FuzzAdvertisement: whatever is let through can be computed with.
func FuzzAdvertisement(f *testing.F) {
	f.Add([]byte(`[{"id":1,"size":4096,"address":139637976727552,"key":"AQID"},{"id":2,"size":0,"address":0}]`))
	f.Add([]byte(`[{"id":1,"size":1,"address":18446744073709551614,"key":"AQ=="}]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		regions, err := parseAdvertisement(b)
		if err != nil {
			if !errors.Is(err, transport.ErrProtocol) {
				t.Errorf("error %v does not wrap ErrProtocol", err)
			}
			return
		}
		for _, r := range regions {
			if r.ID == 0 || r.Size < 0 || r.Address+uint64(r.Size) < r.Address || (r.Size > 0) != (len(r.Key) > 0) {
				t.Errorf("let through: %+v", r)
			}
		}
	})
}
