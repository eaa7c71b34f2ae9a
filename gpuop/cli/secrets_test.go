package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// lint, images and drift print no secret of their input, in any format.
func TestOutputContainsNoSecret(t *testing.T) {
	var planted struct{ Flags, Commands, Values, Terraform []string }
	if err := yaml.Unmarshal([]byte(folder.Read(t, filepath.Join("testdata", "secrets.yaml"))), &planted); err != nil {
		t.Fatal(err)
	}
	// a misspelled key makes lint print the command
	const install = "#!/bin/bash\nhelm install -n gpu-operator gpu-operator nvidia/gpu-operator --version v26.7.0 --set drivr.enabled=true "
	dir, tried := t.TempDir(), 0
	try := func(name, text string, calls ...string) {
		t.Helper()
		tried++
		secret := fmt.Sprintf("hunter%02dPlantedValue", tried)
		path := filepath.Join(dir, fmt.Sprintf("%02d%s", tried, name))
		folder.Write(t, path, strings.ReplaceAll(text, "SECRET", secret)+"\n")
		for _, line := range calls {
			for _, format := range []string{"text", "json", "sarif"} {
				args := strings.Fields(strings.Replace(line, "FILE", path, 1) + " -o " + format)
				if _, out, errOut := call("", args...); strings.Contains(out+errOut, secret) {
					t.Errorf("gpuop %s shows the secret:\n%s%s", strings.Join(args, " "), out, errOut)
				}
			}
		}
	}
	for _, flags := range planted.Flags {
		try("script.sh", install+flags, "lint FILE", "lint --fix FILE")
	}
	for _, commands := range planted.Commands {
		try("script.sh", install+"\n"+commands, "lint FILE", "lint --fix FILE")
	}
	for _, values := range planted.Values {
		try("values.yaml", "drivr: {enabled: true}\n"+values, "lint --version v26.7.0 FILE", "images FILE",
			"drift -f FILE --from ../drift/testdata/healthy.yaml")
	}
	for _, argument := range planted.Terraform {
		try("main.tf", "resource \"helm_release\" \"gpu\" {\n  chart = \"gpu-operator\"\n  "+argument+"\n}", "lint FILE")
	}
	if tried < 60 {
		t.Errorf("planted secrets = %d, want at least 60", tried)
	}
}

// Secrets are also masked in migrate's list of changes and JSON result, in errors, and in lists of images. The migrated
// file keeps its secrets, because it is the user's own file.
func TestSecretsOutsideFindings(t *testing.T) {
	const secret = "hunterPlantedValue"
	text := "driver: {repository: registry.example.com/" + secret + "}\nextraObjects:\n" +
		"- {apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {any: " + secret + "}}\n"
	path := filepath.Join(folder.Of(t, map[string]string{"values.yaml": text}), "values.yaml")
	_, out, errOut := call("", "values", "migrate", path, "--from", "v23.9")
	if strings.Contains(errOut, secret) || strings.Count(out, secret) != 2 {
		t.Errorf("values migrate: secrets in the file = %d, want 2; secrets in the list of changes = %d, want 0\n%s\n%s", strings.Count(out, secret), strings.Count(errOut, secret), errOut, out)
	}
	_, out, _ = call("", "values", "migrate", path, "--from", "v23.9", "-o", "json")
	if strings.Count(out, secret) != 2 {
		t.Errorf("values migrate -o json contains %d secrets, want the 2 of the file:\n%s", strings.Count(out, secret), out)
	}
	for _, args := range [][]string{
		{"images", path}, {"images", path, "-o", "json"},
		{"drift", "--set", "driver.password=" + secret + ",x[=1", "--from", filepath.Join("..", "drift", "testdata", "healthy.yaml")},
	} {
		if _, out, errOut := call("", args...); strings.Contains(out+errOut, secret) {
			t.Errorf("gpuop %s shows the secret:\n%s%s", strings.Join(args, " "), out, errOut)
		}
	}
}

// drift prints no secret of the values, --set, the Helm release or the ClusterPolicy.
func TestDriftShowsNoSecret(t *testing.T) {
	var list map[string]any
	if err := yaml.Unmarshal([]byte(folder.Read(t, "..", "drift", "testdata", "healthy.yaml")), &list); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("plantedLong", 30) // longer than the values that drift prints
	for _, item := range list["items"].([]any) {
		object := item.(map[string]any)
		switch object["kind"] {
		case "ClusterPolicy":
			object["spec"].(map[string]any)["toolkit"] = map[string]any{
				"env":        []any{map[string]any{"name": "NGC_API_KEY", "value": "plantedInPolicy"}},
				"privateKey": long,
				"password":   270001,
				"auth":       map[string]any{"pin": []any{270002}},
				"proxy":      "http://u:plantedInURL@proxy.example.com:3128",
			}
		case "Secret":
			secret := object["data"].(map[string]any)
			secret["release"] = withConfig(t, secret["release"].(string), map[string]any{
				"toolkit": map[string]any{"password": "plantedInRelease", "apiKey": long, "authToken": 270003},
			})
		}
	}
	data, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	from := folder.Of(t, map[string]string{"cluster.yaml": string(data)})
	const values = "toolkit: {password: plantedInValues, apiKey: other, accessToken: 270004}\n"
	short := regexp.MustCompile("planted|27000")
	for _, format := range []string{"text", "json"} {
		code, out, errOut := call(values, "drift", "--from", from, "-f", "-", "-o", format,
			"--set", "toolkit.token=plantedInFlag,toolkit.signingKey=270005")
		if code != exitFindings || short.MatchString(out+errOut) {
			t.Errorf("drift -o %s: exit %d, want 1 and no planted secret\n%s%s", format, code, out, errOut)
		}
		for _, want := range []string{"toolkit.password", "spec.toolkit.env", "spec.toolkit.privateKey", "***"} {
			if !strings.Contains(out, want) {
				t.Errorf("drift -o %s lacks %s:\n%s", format, want, out)
			}
		}
	}
}

// withConfig replaces the values in a Helm release. text and the result are the release as encoded in a Secret.
func withConfig(t *testing.T, text string, values map[string]any) string {
	t.Helper()
	helm, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(helm)))
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.NewDecoder(unzipped).Decode(&r); err != nil {
		t.Fatal(err)
	}
	r["config"] = values
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if err := json.NewEncoder(writer).Encode(r); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(zipped.Bytes())))
}
