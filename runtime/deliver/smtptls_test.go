package deliver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/briefing-swarm/briefing-swarm/internal/mailpittest"
)

// TestSMTPEncrypted sends over STARTTLS and over TLS from the start, with a
// login that is only safe there, to a real server; and nothing to one whose
// certificate nobody vouches for.
func TestSMTPEncrypted(t *testing.T) {
	t.Parallel()
	certFile, keyFile, pool := testCertificate(t)
	trusted := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	for _, c := range []struct {
		name, scheme, query string
		args                []string
	}{
		{"STARTTLS when offered", "smtp", "", []string{"--smtp-require-starttls"}},
		{"STARTTLS required", "smtp", "?tls=required", nil},
		{"TLS from the start", "smtps", "", []string{"--smtp-require-tls"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := mailpittest.Start(t, append(c.args, "--smtp-tls-cert", certFile, "--smtp-tls-key", keyFile, "--smtp-auth-accept-any")...)
			url := c.scheme + "://user:password@" + server.SMTPAddr + c.query

			_, err := testSMTP(t, url, SMTPOptions{}).Send(t.Context(), testMessage(t))
			var failure *SendError
			if !errors.As(err, &failure) || failure.Kind != Fatal || failure.Code != CodeTLS {
				t.Errorf("to a server nobody vouches for: error %v, want %s, fatal", err, CodeTLS)
			}
			if got := len(server.Messages()); got != 0 {
				t.Fatalf("the server has %d mails already", got)
			}

			sender := testSMTP(t, url, SMTPOptions{TLS: trusted})
			for range 3 { // the connection is used again
				if _, err := sender.Send(t.Context(), testMessage(t)); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(server.Messages()); got != 3 {
				t.Errorf("the server has %d mails, want 3", got)
			}
		})
	}
}

// testCertificate writes a certificate for the loopback address, signed by
// itself, and returns the pool that trusts it.
func testCertificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "mail.example"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true,

		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AddCert(certificate)
	return certFile, keyFile, pool
}
