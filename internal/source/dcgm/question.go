package dcgm

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A question is one that the engine did not answer when the session opened, and may answer later:
// who or where a device is. The topology of a session does not change, so that an answer ends it,
// and the next session has it.
type question struct {
	what  string
	query func() error
	next  time.Time // not to be queried before
}

// queryLater adds a question that had no answer because of err, unless the engine will not know it
// later either.
func (s *Session) queryLater(what string, err error, query func() error) {
	if !isFinal(err) {
		s.questions = append(s.questions, question{what, query, time.Now().Add(s.retry)})
	}
}

// queryDue queries what is due. Only a lost engine is an error.
func (s *Session) queryDue(now time.Time) error {
	for i := range s.questions {
		q := &s.questions[i]
		if now.Before(q.next) {
			continue
		}
		err := q.query()
		switch {
		case err == nil:
			s.changed("%s is known now", q.what)
		case s.isOver(err):
			return err
		}
		q.next = now.Add(s.retry)
	}
	return nil
}

var errNoAnswer = errors.New("the engine has no value")

// queryIdentityLater queries later what a device that is read did not say of itself.
func (s *Session) queryIdentityLater(e entity, who identity) {
	var ids []gpu.FieldID
	if e.group != groupGPU && who.model == "" {
		ids = append(ids, fieldName)
	}
	if e.group == groupGPU && who.index < 0 {
		ids = append(ids, fieldIndex)
	}
	if e.group == groupGPU && who.minor < 0 {
		ids = append(ids, fieldMinor)
	}
	if len(ids) == 0 {
		return
	}
	s.queryLater(fmt.Sprintf("the identity of %v", gpuEntity(e)), errNoAnswer, func() error {
		answered := 0
		err := s.readOnce([]entity{e}, ids, func(r readout) {
			for i := range r.samples {
				if v, _ := decode(&gpu.Field{Text: r.samples[i].kind == kindText}, &r.samples[i], r.textOf(&r.samples[i])); !v.IsAbsent() {
					answered++
				}
			}
		})
		if err == nil && answered < len(ids) {
			return errNoAnswer
		}
		return err
	})
}

// gpuEntity names an entity of a GPU for a message.
func gpuEntity(e entity) gpu.Entity {
	if e.group == groupInstance {
		return gpu.Entity{Kind: gpu.KindGPUInstance, ID: e.id}
	}
	return gpu.Entity{Kind: gpu.KindGPU, ID: e.id}
}
