package transport

import (
	"errors"
	"io"
	"testing"
)

func TestClassify(t *testing.T) {
	err := Classify(io.EOF, ErrPeer)
	if !errors.Is(err, io.EOF) || !errors.Is(err, ErrPeer) || err.Error() != "EOF" {
		t.Errorf("got %v", err)
	}
}

func TestEnded(t *testing.T) {
	for _, why := range []error{ErrClosed, errors.Join(ErrPeer, io.EOF), errors.Join(ErrDevice, io.EOF), Classify(io.EOF, ErrLocal)} {
		if err := Ended(why); err != why {
			t.Errorf("%v became %v", why, err)
		}
	}
	if err := Ended(ErrProtocol); !errors.Is(err, ErrPeer) || !errors.Is(err, ErrProtocol) {
		t.Errorf("%v, want an error of the peer that says why", err)
	}
}
