// Package alertmanager tests deployment/alertmanager with the code of Alertmanager: it must accept the configuration, route
// every alert of deployment/rules, and notify once for one fault.
package alertmanager
