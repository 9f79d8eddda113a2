package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// tlsFlags encrypt the control channel, but not the data path.
type tlsFlags struct{ cert, key, ca string }

func (f *tlsFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.cert, "tls-cert", "", "certificate of this side for the control channel, PEM")
	flags.StringVar(&f.key, "tls-key", "", "its key, PEM")
	flags.StringVar(&f.ca, "tls-ca", "", "certificates that the other side's must descend from, PEM")
}

// pair loads this side's certificate, if there is one.
func (f *tlsFlags) pair() ([]tls.Certificate, error) {
	if (f.cert == "") != (f.key == "") {
		return nil, usagef("--tls-cert and --tls-key go together")
	}
	if f.cert == "" {
		return nil, nil
	}
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("load --tls-cert and --tls-key: %w", err)
	}
	return []tls.Certificate{c}, nil
}

func (f *tlsFlags) pool() (*x509.CertPool, error) {
	if f.ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, fmt.Errorf("load --tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load --tls-ca: %s holds no certificate in PEM", f.ca)
	}
	return pool, nil
}

// load loads the files that the flags name. Both results are nil without flags.
func (f *tlsFlags) load() ([]tls.Certificate, *x509.CertPool, error) {
	certs, err := f.pair()
	if err != nil {
		return nil, nil, err
	}
	pool, err := f.pool()
	return certs, pool, err
}

// server returns the consumer's configuration, or nil without flags. The consumer needs a
// certificate. With a CA, it requires certificates of producers too.
func (f *tlsFlags) server() (*tls.Config, error) {
	certs, pool, err := f.load()
	if err != nil || certs == nil && pool == nil {
		return nil, err
	}
	if certs == nil {
		return nil, usagef("--tls-ca on the consumer needs --tls-cert and --tls-key too")
	}
	c := &tls.Config{Certificates: certs, MinVersion: tls.VersionTLS13}
	if pool != nil {
		c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// client returns the producer's configuration, or nil without flags.
func (f *tlsFlags) client() (*tls.Config, error) {
	certs, pool, err := f.load()
	if err != nil || certs == nil && pool == nil {
		return nil, err
	}
	if pool == nil {
		return nil, usagef("--tls-cert on the producer needs --tls-ca, to know the consumer by")
	}
	return &tls.Config{Certificates: certs, RootCAs: pool, MinVersion: tls.VersionTLS13}, nil
}
