//go:build linux && cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A row holds the plan's fields of one entity, sorted by how they are read.
type row struct {
	index  int
	kind   gpu.Kind
	gi     int    // NVML's GPU instance ID; instances only
	link   uint32 // link number; links only
	target target

	declined  []gpu.Fault // faults of fields that have no values in this session
	queries   []query
	values    []valueQuery
	gpm       gpmRow
	processes processes
}

// An output is a field that uses an answer.
type output struct {
	field int // index of the field in the plan
	at    int // index of the answer
}

// reprobe is how long queries that the driver does not support or permit are not repeated.
const reprobe = 10 * time.Minute

// A backoff delays the repetition of queries that fail.
type backoff struct {
	until time.Time
	err   error
}

// active reports whether the query must wait.
func (b *backoff) active(now time.Time) bool { return b.err != nil && now.Before(b.until) }

// never disables the query for this session.
func (b *backoff) never(err error) {
	b.err, b.until = err, time.Now().AddDate(100, 0, 0)
}

// record records the result of the query and returns its error. Repeated failures return the same error value.
func (b *backoff) record(function string, ret gonvml.Return, now time.Time) error {
	if ret == gonvml.SUCCESS {
		*b = backoff{}
		return nil
	}
	if prev, ok := b.err.(*driverError); !ok || prev.ret != ret {
		b.err = &driverError{function, ret}
	}
	b.until = now
	if lasting(ret) {
		b.until = now.Add(reprobe)
	}
	return b.err
}

// A query is a call with the fields that use its answers.
type query struct {
	call    *call
	outputs []output
	backoff backoff
	kept    *answers // answers of a constant call, once it has succeeded
}

// A valueQuery is a field computed from NVML field values.
type valueQuery struct {
	field int
	spec  spec
	rate  linkRate // rate of the links' data counters
	block backoff
	slot  int // index of its first value in the current call, or -1
}

// ids returns the NVML_FI_DEV_* IDs of the values that the field needs.
func (v *valueQuery) ids() []uint32 {
	if v.spec.link {
		return linkCounters[:]
	}
	return []uint32{v.spec.value}
}

// compile sorts the plan's fields that exist for the row's kind of entity.
func (s *Session) compile(d *device, r *row) {
	for i := range s.plan.Fields {
		f := &s.plan.Fields[i]
		if !f.Levels.Has(r.kind) || f.ID == catalog.XIDErrors || r.kind == gpu.KindNVLink && !byLink(f) {
			continue
		}
		sp, ok := specOf(f.ID)
		entry, _ := catalog.ByID(f.ID)
		if r.kind == gpu.KindNVLink {
			sp.scope = r.link
		}
		switch {
		case !ok:
			r.decline(i, "the NVML source does not read this field")
		case entry.Unit != f.Unit:
			r.decline(i, fmt.Sprintf("NVML reports this field in %q, not in %q", entry.Unit, f.Unit))
		case sp.call != nil && !s.symbols.any(sp.call.symbols):
			r.decline(i, "this driver has no "+sp.call.symbols[0])
		case sp.call != nil && (sp.call.instance || r.kind != gpu.KindGPUInstance):
			r.compileCall(d, i, sp)
		case sp.metric != 0:
			r.gpm.metrics = append(r.gpm.metrics, gpmMetric{field: i, metric: sp.metric, unit: f.Unit})
		case r.kind == gpu.KindGPUInstance:
			r.decline(i, "NVML reports this field only for GPUs, not for instances")
		case !s.symbols.has(fieldValuesFunction):
			r.decline(i, "this driver has no "+fieldValuesFunction)
		default:
			r.values = append(r.values, valueQuery{field: i, spec: sp})
		}
	}
	isLively := func(q query) bool { return !q.call.constant }
	if r.kind == gpu.KindGPU && len(r.values) == 0 && !slices.ContainsFunc(r.queries, isLively) {
		r.queries = append(r.queries, query{call: temperature}) // shows whether the GPU can be read
	}
}

func (r *row) compileCall(d *device, field int, sp spec) {
	c := sp.call
	if c.whole && d.mig {
		r.decline(field, "this field is undefined for a GPU in MIG mode")
		return
	}
	at := slices.IndexFunc(r.queries, func(q query) bool { return q.call == c })
	if at < 0 {
		at, r.queries = len(r.queries), append(r.queries, query{call: c})
	}
	r.queries[at].outputs = append(r.queries[at].outputs, output{field, sp.at})
}

func (r *row) decline(field int, why string) {
	err := fmt.Errorf("%w: %s", gpu.ErrNotSupported, why)
	r.declined = append(r.declined, gpu.Fault{Row: r.index, Field: field, Err: err})
}

// readRow appends the values of one entity. It returns an error only if the GPU or the driver is gone.
func (s *Session) readRow(r *row, b *gpu.Batch) error {
	b.Faults = append(b.Faults, r.declined...)
	for i := range r.queries {
		if err := s.readCall(r, &r.queries[i], b); err != nil {
			return err
		}
	}
	if err := s.inTime(time.Now()); err != nil {
		return err
	}
	if err := s.readValues(r, b); err != nil {
		return err
	}
	return s.readProfiling(r, b)
}

func (s *Session) readCall(r *row, a *query, b *gpu.Batch) error {
	now := time.Now()
	if err := s.inTime(now); err != nil {
		return err
	}
	got := a.kept
	if got == nil {
		got = &s.answer
		*got = answers{}
		if !a.backoff.active(now) {
			ret := a.call.read(&r.target, got)
			if a.backoff.record(a.call.symbols[0], ret, now); gone(ret) {
				return a.backoff.err
			}
		}
		if a.backoff.err != nil {
			for _, w := range a.outputs {
				b.Fail(r.index, w.field, a.backoff.err)
			}
			return nil
		}
		if a.call.constant {
			kept := *got
			a.kept = &kept
		}
	}
	at := now.UnixNano()
	for _, w := range a.outputs {
		if v := got[w.at]; v.IsAbsent() {
			b.Fail(r.index, w.field, errNoAnswer)
		} else {
			b.AddAt(r.index, w.field, v, at)
		}
	}
	return nil
}

// errNoAnswer is the fault of a value that a successful call did not return: memory that an old driver does not
// separate, an empty string, or a license that is not listed.
var errNoAnswer = fmt.Errorf("%w: the driver returned no value", gpu.ErrNotSupported)

const fieldValuesFunction = "nvmlDeviceGetFieldValues"

// readValues reads all field values of the row in one call.
func (s *Session) readValues(r *row, b *gpu.Batch) error {
	now := time.Now()
	s.values = s.values[:0]
	for i := range r.values {
		v := &r.values[i]
		v.slot = -1
		if v.block.active(now) {
			b.Fail(r.index, v.field, v.block.err)
			continue
		}
		v.slot = len(s.values)
		for _, id := range v.ids() {
			s.values = append(s.values, gonvml.FieldValue{FieldId: id, ScopeId: v.spec.scope})
		}
	}
	if len(s.values) == 0 {
		return nil
	}
	all := r.target.device.GetFieldValues(s.values)
	for i := range r.values {
		v := &r.values[i]
		if v.slot < 0 {
			continue
		}
		values := s.values[v.slot : v.slot+len(v.ids())]
		ret := all // the return code of the call, or else the first code of a value that is not SUCCESS
		for i := 0; i < len(values) && ret == gonvml.SUCCESS; i++ {
			ret = gonvml.Return(values[i].NvmlReturn)
		}
		switch err := v.block.record(fieldValuesFunction, ret, now); {
		case gone(ret):
			return err
		case err != nil:
			b.Fail(r.index, v.field, err)
		default:
			b.AddAt(r.index, v.field, v.value(values, now), now.UnixNano())
		}
	}
	return nil
}

// value returns the field's value. It is absent if the field values do not determine it.
func (v *valueQuery) value(values []gonvml.FieldValue, now time.Time) gpu.Value {
	if v.spec.link {
		return v.rate.value(values, now)
	}
	kind := gonvml.ValueType(values[0].ValueType)
	if v.spec.word {
		kind = gonvml.VALUE_TYPE_UNSIGNED_INT
	}
	value := decode(kind, values[0].Value)
	if n, ok := value.Int64(); ok && v.spec.ber {
		return errorRate(n)
	}
	return value
}

// decode returns the number in a value (nvmlValue_t, nvml.h). It is absent if an int64 cannot hold it.
func decode(kind gonvml.ValueType, value [8]byte) gpu.Value {
	bits := binary.NativeEndian.Uint64(value[:])
	word := binary.NativeEndian.Uint32(value[:4])
	switch kind {
	case gonvml.VALUE_TYPE_DOUBLE:
		return gpu.Float(math.Float64frombits(bits))
	case gonvml.VALUE_TYPE_UNSIGNED_INT:
		return gpu.Int(int64(word))
	case gonvml.VALUE_TYPE_SIGNED_INT:
		return gpu.Int(int64(int32(word)))
	case gonvml.VALUE_TYPE_UNSIGNED_SHORT:
		return gpu.Int(int64(binary.NativeEndian.Uint16(value[:2])))
	case gonvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return gpu.Int(int64(bits))
	case gonvml.VALUE_TYPE_UNSIGNED_LONG, gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		if bits <= math.MaxInt64 {
			return gpu.Int(int64(bits))
		}
	}
	return gpu.Value{}
}

// A linkRate computes DCGM's NVLink bandwidth from the data counters of the links. The counters hold KiB since the
// driver was loaded, received and sent separately. DCGM publishes their increase per second, divided by 1,000 and
// rounded down, and calls it MB/s (ReadAndCacheNvLinkBandwidth, DcgmCacheManager.cpp).
type linkRate struct {
	total uint64    // KiB at the previous reading
	at    time.Time // time of the previous reading; zero before the first
}

// linkCounters lists the field values of a rate.
var linkCounters = [...]uint32{gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, gonvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX}

// value returns the bandwidth since the previous reading. It is absent if the counters went back or no time passed. It
// is also absent at the first reading, for which DCGM publishes zero.
func (l *linkRate) value(counters []gonvml.FieldValue, now time.Time) gpu.Value {
	total, stamp := uint64(0), int64(0)
	for i := range counters {
		n, ok := decode(gonvml.ValueType(counters[i].ValueType), counters[i].Value).Int64()
		if !ok {
			return gpu.Value{}
		}
		total += uint64(n)
		stamp = max(stamp, counters[i].Timestamp)
	}
	at := now
	if stamp > 0 {
		at = time.UnixMicro(stamp)
	}
	before, since := l.total, l.at
	l.total, l.at = total, at
	seconds := at.Sub(since).Seconds()
	if since.IsZero() || total < before || seconds <= 0 {
		return gpu.Value{}
	}
	return gpu.Int(int64(float64(total-before) / seconds / 1000))
}

// errorRate unpacks a bit error rate, which is a mantissa and a negative decimal exponent.
func errorRate(packed int64) gpu.Value {
	mantissa := packed >> gonvml.NVLINK_BER_MANTISSA_SHIFT & gonvml.NVLINK_BER_MANTISSA_WIDTH
	places := packed >> gonvml.NVLINK_BER_EXP_SHIFT & gonvml.NVLINK_BER_EXP_WIDTH
	return gpu.Float(float64(mantissa) * math.Pow10(-int(places)))
}
