// Package alertmanager tests deployment/alertmanager with the code of Alertmanager. Alertmanager must accept the
// configuration, route every alert in deployment/rules, and send one notification for each fault.
package alertmanager
