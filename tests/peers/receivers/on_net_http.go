package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

var folder = os.Getenv("FOLDER")
var number atomic.Int64

func show(w http.ResponseWriter, r *http.Request) {
	http.ServeFile(w, r, folder+"/hash")
}

func take(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, port, _ := net.SplitHostPort(r.RemoteAddr)
	lines := []string{r.URL.Path, port, "Host: " + r.Host}
	for name, values := range r.Header {
		for _, each := range values {
			lines = append(lines, name+": "+each)
		}
	}
	n := number.Add(1)
	written := fmt.Sprintf("%s/writing-%d", folder, n)
	os.WriteFile(written, []byte(strings.Join(lines, "\n")+"\n\n"+string(body)), 0o600)
	os.Rename(written, fmt.Sprintf("%s/%06d.delivery", folder, n))
	switch r.URL.Path {
	case "/refuse":
		http.Error(w, "no such bed", http.StatusBadRequest)
	case "/close":
		w.Header().Set("Connection", "close")
	}
}

func main() {
	http.HandleFunc("/ams_verification_hash", show)
	http.HandleFunc("/", take)
	panic(http.ListenAndServeTLS("127.0.0.1:"+os.Getenv("PORT"), os.Getenv("CERTIFICATE"), os.Getenv("KEY"), nil))
}
