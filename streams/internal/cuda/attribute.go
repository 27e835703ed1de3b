package cuda

// Attribute numbers a property of a device, as CUdevice_attribute does.
type Attribute int

// The attributes in use.
const (
	MaxThreadsPerBlock     Attribute = 1
	Multiprocessors        Attribute = 16
	Integrated             Attribute = 18
	CopyEngines            Attribute = 40
	CapabilityMajor        Attribute = 75
	CapabilityMinor        Attribute = 76
	ManagedMemory          Attribute = 83
	PageableAccess         Attribute = 88
	ConcurrentManaged      Attribute = 89
	PageableUsesHostTables Attribute = 100
)

// Advice says how managed memory will be used, as CUmem_advise does.
type Advice int

// The kinds of advice.
const (
	SetReadMostly          Advice = 1
	UnsetReadMostly        Advice = 2
	SetPreferredLocation   Advice = 3
	UnsetPreferredLocation Advice = 4
	SetAccessedBy          Advice = 5
	UnsetAccessedBy        Advice = 6
)
