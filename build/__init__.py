"""All side effects of making the library: compile in parallel, cache, link, pack. Not PyPA's `build` (see __main__)."""
