package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

const installCommand = "helm install -n gpu-operator gpu-operator nvidia/gpu-operator --version v26.7.0 --set drivr.enabled=true "

// plantedScripts are appended to installCommand, with a secret in place of %s. The misspelled key in installCommand
// makes lint print the command.
var plantedScripts = []string{
	"--set driver.licensingConfig.clientSecret=%s",
	"--set toolkit.password=%s",
	"--set toolkit.apiKey=%s --set toolkit.enabled=%[1]s",
	"--set-string driver.accessKey=%s",
	"--password %s",
	"--password=%s",
	"--password '%s'",
	`--password "%s"`,
	"--kube-token %s",
	"--registry-token=%s",
	"--username u --password %s --set toolkit.enabled=%[1]s",
	"--set 'driver.repoConfig.token=%s'",
	`--set "driver.proxy=http://u:%s@proxy.example.com:3128"`,
	"--set driver.env[0].name=HTTPS_TOKEN --set driver.env[0].value=%s",
	"--set driver.env[0].name=DB_PASS,driver.env[0].value=%s",
	"--set daemonsets.tls.key=%s",
	"\ndocker login nvcr.io -u '$oauthtoken' -p %s",
	"\ndocker login nvcr.io -u u --password %s",
	"\necho %s | docker login nvcr.io --username u --password-stdin",
	"\nprintf '%%s' %s | docker login nvcr.io --password-stdin",
	"\ndocker login nvcr.io --password-stdin <<< %s",
	"\nkubectl create secret docker-registry ngc --docker-username=u --docker-password=%s",
	"\nkubectl create secret docker-registry ngc --docker-password '%s'",
	"\nkubectl create secret generic a --from-literal=whatever=%s",
	"\nkubectl create secret generic a --from-literal=one=1 --from-literal='two=%s'",
	"\nkubectl create secret generic a \\\n  --from-literal=key=%s",
	"\ncurl -u admin:%s https://example.com/values.yaml",
	"\ncurl --user admin:%s https://example.com",
	"\ncurl -H 'Authorization: Bearer %s' https://example.com",
	"\ncurl -H 'Authorization: Basic %s' https://example.com",
	"\nexport NGC_API_KEY=%s",
	"\nexport REGISTRY_PASSWORD='%s'",
	"\nTOKEN=%s helm version",
	"\nhelm repo add nvidia https://u:%s@helm.example.com",
	"\nhelm registry login -u u -p %s nvcr.io",
	"\nread -r TOK <<< %s",
	"\nGH_TOK=%s DB_PW=%[1]s helm version",
	"\ngit clone https://x-access-token:%s@github.com/a/b",
}

// plantedValues are values with a secret in place of %s. The test adds a misspelled key, which lint reports.
var plantedValues = []string{
	"driver: {licensingConfig: {clientSecret: %s}}",
	"validator: {secret: %s}",
	"driver:\n  repoConfig:\n    password: %s",
	"driver:\n  repoConfig:\n    passwd: '%s'",
	"toolkit:\n  apiKey: \"%s\"",
	"toolkit:\n  api_key: %s",
	"toolkit:\n  privateKey: |\n    -----BEGIN PRIVATE KEY-----\n    %s\n    -----END PRIVATE KEY-----",
	"toolkit:\n  credentials: %s",
	"toolkit:\n  credentials: {user: u, value: %s}",
	"toolkit:\n  env:\n  - name: HTTP_TOKEN\n    value: %s",
	"toolkit:\n  env:\n  - {name: DB_PASSWORD, value: %s}",
	"driver:\n  env:\n  - name: HTTPS_PROXY\n    value: http://u:%s@proxy.example.com:3128",
	"validator:\n  accessToken: %s",
	"validator:\n  clientSecret: %s",
	"extraObjects:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: a}\n  stringData: {anything: %s}",
	"extraObjects:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: a}\n  data: {x: %s}",
	"validator:\n  dockerconfigjson: %s",
	"validator:\n  ngcKey: %s",
	"validator:\n  authToken: %s",
	"validator:\n  signingKey: %s",
	"validator:\n  passphrase: %s",
	"validator:\n  webhookSecret: %s",
	"validator:\n  auth: %s",
	"dcgmExporter:\n  args: [--api-token, %s]",
	"dcgmExporter:\n  args:\n  - --api-token\n  - %s",
	"operator:\n  annotations: {a: Basic %s}",
	"operator:\n  annotations: {a: https://hooks.example.com/services/T0/B0/%s}",
	"validator:\n  url: https://u:%s@example.com/a",
	"toolkit:\n  repository: u:%s@example.com/a",
	"toolkit:\n  repository: u:%s@registry:5000/a",
}

// lint, images and drift print no secret of their input, in any format.
func TestOutputContainsNoSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	planted := 0
	check := func(secret string, args ...string) {
		t.Helper()
		for _, format := range []string{"text", "json", "sarif"} {
			_, out, errOut := call("", append(args, "-o", format)...)
			if strings.Contains(out+errOut, secret) {
				t.Errorf("gpuop %s -o %s shows the secret:\n%s%s", strings.Join(args, " "), format, out, errOut)
			}
		}
	}
	secretOf := func() string {
		planted++
		return fmt.Sprintf("hunter%02dPlantedValue", planted)
	}
	for i, text := range plantedScripts {
		secret := secretOf()
		path := write(fmt.Sprintf("script%02d.sh", i), "#!/bin/bash\n"+installCommand+fmt.Sprintf(text, secret)+"\n")
		check(secret, "lint", path)
		check(secret, "lint", "--fix", path)
	}
	for i, text := range plantedValues {
		secret := secretOf()
		path := write(fmt.Sprintf("values%02d.yaml", i), "drivr: {enabled: true}\n"+fmt.Sprintf(text, secret)+"\n")
		check(secret, "lint", "--version", "v26.7.0", path)
		check(secret, "images", path)
		check(secret, "drift", "-f", path, "--from", filepath.Join("..", "drift", "testdata", "healthy.yaml"))
	}
	for i, text := range []string{
		`values = [yamlencode({ drivr = { enabled = true, password = "%s" } })]`,
		`values = [yamlencode({ drivr = { token = "%s" } })]`,
	} {
		secret := secretOf()
		path := write(fmt.Sprintf("main%02d.tf", i), "resource \"helm_release\" \"gpu\" {\n  chart = \"gpu-operator\"\n  "+fmt.Sprintf(text, secret)+"\n}\n")
		check(secret, "lint", path)
	}
	if planted < 60 {
		t.Errorf("planted secrets = %d, want at least 60", planted)
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
	data, err := os.ReadFile(filepath.Join("..", "drift", "testdata", "healthy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var list map[string]any
	if err := yaml.Unmarshal(data, &list); err != nil {
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
	if data, err = yaml.Marshal(list); err != nil {
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
