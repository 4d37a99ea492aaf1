// Ask with Go's net/http: asks PLAN. One client, which keeps connections, offers HTTP/2 by TLS and accepts gzip.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

type ask struct {
	Method, Path, Token, Body string
	Chunked, Expect, Close    bool
}

type plan struct {
	Base, CA string
	Asks     []ask
}

type told struct {
	Status  int    `json:"status"`
	Body    string `json:"body"`
	Version string `json:"version"`
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func body(each ask) io.Reader {
	if each.Body == "" {
		return nil
	}
	if each.Chunked {
		return io.MultiReader(strings.NewReader(each.Body)) // of a type whose length net/http does not know
	}
	return strings.NewReader(each.Body)
}

func answered(client *http.Client, base string, each ask) told {
	request := must(http.NewRequest(each.Method, base+each.Path, body(each)))
	request.Header.Set("x-api-key", each.Token)
	request.Close = each.Close
	if each.Expect {
		request.Header.Set("Expect", "100-continue")
	}
	response := must(client.Do(request))
	defer response.Body.Close()
	text := must(io.ReadAll(response.Body))
	return told{response.StatusCode, string(text), fmt.Sprintf("%d.%d", response.ProtoMajor, response.ProtoMinor)}
}

func main() {
	var all plan
	_ = must(0, json.Unmarshal(must(os.ReadFile(os.Args[1])), &all))
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ExpectContinueTimeout = 5 * time.Second
	if pem, err := os.ReadFile(all.CA); err == nil {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted}
		transport.ForceAttemptHTTP2 = true
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	answers := []told{}
	for _, each := range all.Asks {
		answers = append(answers, answered(client, all.Base, each))
	}
	_ = must(0, json.NewEncoder(os.Stdout).Encode(answers))
}
